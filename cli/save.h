/* Every tensor of a run as .npy files in a folder, ranks' parts together in rank order. */
#ifndef CLI_SAVE_H
#define CLI_SAVE_H

#include "share.h"

/* Before the work: whether the folder can be written, or made. Says what is wrong and returns an exit code. */
int save_check(const char *folder);

/* Collective, after forward and backward. Makes the folder when there is none. The files have other names until all of
 * them are complete. */
int save_tensors(struct share *share, const char *folder);

#endif
