/* One rank's share of a problem: its tensors, its layer, and the two calls on them. */
#ifndef CLI_SHARE_H
#define CLI_SHARE_H

#include "ranks.h"

struct share {
    const struct problem *problem;
    struct rank *rank;
    void *data[TENSORS];   /* this rank's tokens or experts */
    void *placed[TENSORS]; /* where the calls find them: the same, or memory of the group's device */
    void *others[TENSORS]; /* of the device: outputs of calls before the last share_swap_outputs */
    mmoe_layer *layer;
    mmoe_saved *saved;
    mmoe_report forward, backward; /* of the last calls */
};

/* Tokens or experts of this rank that a tensor holds, and the first one's number in the problem. */
int64_t share_count(const struct share *share, enum tensor tensor);
int64_t share_first(const struct share *share, enum tensor tensor);
int64_t share_elements(const struct share *share, enum tensor tensor);

/* Allocates what the command needs, makes the inputs, poisons the outputs with NaN and makes the layer. On failure
 * returns an exit code, with the rank's sentence set; share_close is due in any case. */
int share_open(struct share *share, const struct problem *problem, struct rank *rank);
void share_close(struct share *share);

/* Collective: the calls, which all ranks must be about to make. */
int share_forward(struct share *share);
int share_backward(struct share *share);
int share_forward_traced(struct share *share, mmoe_trace **trace);
int share_backward_traced(struct share *share, mmoe_trace **trace);

/* Collective: both, or with --forward the first alone, with progress shown, and their outputs in `data`. Returns
 * whether every rank is well after them; where one was not before, nothing is called. */
bool share_both(struct share *share);

/* Brings the outputs to `data`. */
void share_fetch(struct share *share);

/* On a device: from now on the calls' outputs go to other memory, poisoned with NaN at first; back and forth with each
 * call of this. */
int share_swap_outputs(struct share *share);

/* Of a tensor in `data`, as this rank's part of the whole: the ranks' add up. */
uint64_t share_checksum(const struct share *share, enum tensor tensor);

#endif
