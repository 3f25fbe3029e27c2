/* A routing plan made on a device, whatever runs it: its inputs, where its arrays lie in one block of memory, and the
 * comparison of that block with the host's plan. */
#ifndef DEVICE_PLAN_H
#define DEVICE_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/plan_params.h"
#include "plan/plan.h"
#include "rig/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plan_case {
    struct mm_plan_shape shape;
    int64_t max_tokens;
    int32_t tokens[PLAN_MAX_WORLD];
    int32_t *ids;   /* [W, max_tokens, K] */
    float *weights; /* likewise, any bits */
    uint32_t chunks, warps, row_room;

    /* What the calls before have left: any counts. */
    struct call_state state;
    struct work_counters counters;
    uint32_t *rows_in, *h_in, *results_in; /* [row_room / PLAN_ROW_BLOCK] */
    uint32_t h_tiles, result_tiles;
};

/* Any shape: up to 8 ranks, 512 experts, 64 slots a token, `most_tokens` tokens a rank (often none), multiprocessors
 * and warps up to the device's; with and without a capacity, drop, and room for all rows. */
void plan_case_random(struct plan_case *c, uint64_t seed, uint32_t multiprocessors, int64_t most_tokens);

/* Draws ids, weights and counts for a case whose shape, max_tokens and tokens are set; chunks and warps become those of
 * a device with so many multiprocessors, row_room what every routing fits in. Ends the program without memory. */
void plan_case_draw(struct plan_case *c, enum rig_routing kind, struct rig_random *random, uint32_t multiprocessors);
void plan_case_free(struct plan_case *c);

/* Sets the parameters for a block of memory at `base`, which may be an address of a device, and returns the block's
 * bytes. The first plan_case_input_bytes() of them are inputs; of these only the state changes. */
size_t plan_case_place(const struct plan_case *c, void *base, struct plan_params *params);
size_t plan_case_input_bytes(const struct plan_case *c);
void plan_case_write_inputs(const struct plan_case *c, void *block);

/* Compares a copy of the block after the kernels ran, but for the ids and weights; all that lies after the inputs was
 * `poison` before. false: the first difference is printed. */
bool plan_case_compare(const struct plan_case *c, const void *block, unsigned char poison);

#ifdef __cplusplus
}
#endif

#endif
