/* What a trace tells, against the plan of its call and its report: every task, token row and sum once and at its own
 * time. */
#ifndef CUDA_TOLD_H
#define CUDA_TOLD_H

#include "rig/rig.h"

/* What a rank knows of a traced call. */
struct told {
    const mmoe_trace *trace;
    const mmoe_plan *plan;
    mmoe_report report;
    const mmoe_layer_config *layer;
    int64_t tokens;
    int slots; /* rows of a token that are fetched: 1, or 2 */
};

/* Times of events that follow one another on their tracks, inside the trace's. */
bool told_times(struct rig_rank *rank, const mmoe_trace *trace);

/* Of every block, each of `tiles` tiles once, by all who tell of such a kind: one of each half where consumers do. */
bool told_tasks(struct rig_rank *rank, const struct told *told, mmoe_trace_kind kind, int64_t tiles);

/* The same of every local expert, or of those with rows. */
bool told_gradients(struct rig_rank *rank, const struct told *told, mmoe_trace_kind kind, int64_t tiles,
                    bool only_with_rows);

/* Each token that has a row here, once in all its pieces; each of its rows written, each pad cleared. */
bool told_fetching(struct rig_rank *rank, const struct told *told);

/* `bytes` of each row that travels in events of a kind that pushes; what went to peers is added to `*to_peers`. */
bool told_pushes(struct rig_rank *rank, const struct told *told, mmoe_trace_kind kind, int64_t bytes,
                 int64_t *to_peers);

/* Each token once, by roles of the set, a bit each. */
bool told_sums(struct rig_rank *rank, const struct told *told, unsigned roles);

/* At most `records` events of a warp of each kernel, and some that are lost. */
bool told_cut(struct rig_rank *rank, const mmoe_trace *trace, int64_t records, int kernels);

/* Tiles of so many columns. */
static inline int64_t told_tiles(int64_t columns) {
    return (columns + 255) / 256;
}

#endif
