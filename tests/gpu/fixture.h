/* Calls of one layer whose operands stay where they are, made or replayed from graphs in which they were captured. */
#ifndef GPU_FIXTURE_H
#define GPU_FIXTURE_H

#include "graphs.h"

struct fixture {
    mmoe_layer *layer;
    mmoe_saved *saved;
    mm_cu_stream stream;
    struct rig_call call;
    struct rig_placed placed;
    void *forward, *backward, *both; /* graphs; NULL: not captured */
};

bool fixture_make(struct rig_rank *rank, const struct rig_batch *batch, const struct rig_options *options,
                  struct fixture *fixture);
void fixture_free(struct rig_rank *rank, struct fixture *fixture);

/* A graph of each call, or one of both. */
bool fixture_capture(struct rig_rank *rank, struct fixture *fixture);
bool fixture_capture_both(struct rig_rank *rank, struct fixture *fixture);

/* What is replayed of a forward and its backward; the rest is made. */
enum { REPLAY_NOTHING = 0, REPLAY_FORWARD = 1, REPLAY_BACKWARD = 2, REPLAY_BOTH = 4 };

/* The operands of a step, a call of the same shape, but for the weights. */
bool fixture_put(struct rig_rank *rank, const struct fixture *fixture, const struct rig_call *step);

/* Both calls have ended when this returns. */
bool fixture_run(struct rig_rank *rank, const struct fixture *fixture, unsigned replayed);

/* The forward and backward of a batch, with its results and its plan. */
bool fixture_step(struct rig_rank *rank, const struct fixture *fixture, struct rig_batch *batch, unsigned replayed,
                  int poison);

#endif
