/* Every tensor of a run as .npy files in a folder, ranks' parts together in rank order. */
#ifndef CLI_SAVE_H
#define CLI_SAVE_H

#include "share.h"

/* Makes the folder when there is none. Says what is wrong and returns an exit code when it can't be written. */
int save_check(const char *folder);

/* Collective, after forward and backward. The files have other names until all of them are complete. */
int save_tensors(struct share *share, const char *folder);

#endif
