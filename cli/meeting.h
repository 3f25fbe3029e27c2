/* Where ranks that are separate processes of the command meet to tell rank 0 their numbers: a Unix socket with an
 * abstract name made from the rendezvous in the environment, so that nothing is left in any folder.
 *
 * The library's group does the layer's work; this carries only what is printed. */
#ifndef CLI_MEETING_H
#define CLI_MEETING_H

#include <stdbool.h>
#include <stddef.h>

#include "megamoe.h"

struct meeting {
    int rank, world;
    int socket[MMOE_MAX_WORLD]; /* on rank 0: to each rank; on the others [0]: to rank 0; -1: none */
};

/* Collective. On failure writes a sentence to `error`. */
bool meeting_open(struct meeting *meeting, int rank, int world, char *error, size_t error_bytes);
void meeting_close(struct meeting *meeting);

/* Collective: everyone's `mine` of `bytes` bytes, in rank order, to everyone. */
bool meeting_gather(struct meeting *meeting, const void *mine, size_t bytes, void *all, char *error,
                    size_t error_bytes);

#endif
