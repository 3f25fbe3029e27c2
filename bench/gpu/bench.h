/* What the GPU benchmarks in Python call: the grouped products one at a time, and the whole layer, on memory of the
 * caller, for example of PyTorch tensors. Arguments are numbers and addresses alone, so that no struct has to be
 * described twice.
 *
 * Operands are bound to an address by name. They are contiguous; gate and up are the two halves of one "w13". Functions
 * that can fail return an mmoe_status; bench_error() is then the reason. */
#ifndef BENCH_GPU_BENCH_H
#define BENCH_GPU_BENCH_H

#include <stdint.h>

const char *bench_error(void);

/* ---- Products ---- */

struct bench_products;

/* Over `experts` segments with rows[e] used rows each. */
int bench_products_make(int64_t hidden, int64_t intermediate, int64_t experts, const int32_t *rows,
                        struct bench_products **made);
void bench_products_free(struct bench_products *products);

/* First row of an expert's segment; of `experts`: the rows of every pool. */
int64_t bench_products_first_row(const struct bench_products *products, int64_t expert);

/* Pools of R rows, bf16: "x", "dy", "out" [R, H], "gate_up", "dgrad" [R, 2I], "h" [R, I]. fp32: "row_weight" [R],
 * "dw_parts" [ceil(I / 256), R]. Weights, bf16: "w13" [E, 2I, H], "w2" [E, H, I]; gradients "dw13", "dw2" likewise,
 * bf16 or fp32 as the launch says. */
int bench_products_bind(struct bench_products *products, const char *operand, void *address);

/* Queues one of "gate_up", "gate_up_keep", "down", "dgate_up", "dx", "dw2", "dw13"; `wide` and `accumulate` are of the
 * gradients. */
int bench_products_run(struct bench_products *products, const char *product, int wide, int accumulate, void *stream);

/* ---- Group ---- */

struct bench_group;

/* `world` 1: this process alone. More: this process as one of the ranks that the environment names, as torchrun sets
 * it. For layers of these sizes and up to `max_tokens` tokens a call; `name` tells groups of one environment apart. */
int bench_group_make(const char *backend, const char *name, int world, int64_t hidden, int64_t experts, int64_t top_k,
                     int64_t max_tokens, struct bench_group **made);
void bench_group_free(struct bench_group *group);

/* ---- Layer ---- */

struct bench_layer;

/* `capacity`: the rows that a rank may receive, or 0 for buffers that grow. `keep`: an mmoe_keep. `grouped`: a
 * grouped combine. */
int bench_layer_make(struct bench_group *group, int64_t hidden, int64_t intermediate, int64_t experts, int64_t top_k,
                     int64_t capacity, int keep, int grouped, struct bench_layer **made);
void bench_layer_free(struct bench_layer *layer);

/* "x", "y", "dy", "dx" [T, H] bf16, "ids" [T, K] int64, "weights", "dweights" [T, K] fp32, weights and gradients as
 * above, of the rank's own E / W experts. A gradient that is not bound is left out. */
int bench_layer_bind(struct bench_layer *layer, const char *operand, void *address);

/* Queue a call. `wide`: fp32 gradients of weights. `accumulate`: they are added to what is there. `timed`: waits for
 * the end and notes the times of the phases. A backward is of the layer's last forward, which serves any number. */
int bench_layer_forward(struct bench_layer *layer, int64_t tokens, int timed, void *stream);
int bench_layer_backward(struct bench_layer *layer, int64_t tokens, int wide, int accumulate, int timed, void *stream);

/* Of the last timed call: "exchange", "plan", "fused", "dispatch", "gate_up", "down", "dgrad", "wgrad", "combine",
 * "total", as in an mmoe_report. Negative for any other name. */
double bench_layer_seconds(const struct bench_layer *layer, const char *phase);

/* Of the last timed call: "rows", "padded_rows", "bytes_pulled", "bytes_pushed". Negative for any other name. */
int64_t bench_layer_count(const struct bench_layer *layer, const char *what);

#endif
