/* The layer's four row products, each over runs of rows and tiles of columns, with what is done to a tile at once. */
#ifndef MM_CPU_PRODUCTS_H
#define MM_CPU_PRODUCTS_H

#include "cpu/state.h"

/* Plans the products of a layer: tiles, and the form of each by trying or from what the group knows. */
void mm_products_plan(const mmoe_layer_config *config, struct mm_cpu_group *cpu, struct mm_cpu_layer *layer);

/* Each of the following works on the first `runs` runs of the pool. */

/* Gate and up from call->x, kept in call->gate_up unless it is NULL; h in call->h when `with_h`. */
mmoe_status mm_products_gate_up(const struct mm_cpu_call *call, int64_t runs, bool with_h);

/* The experts' outputs from call->h, written to call->results or else to the combine slots of their tokens' ranks. */
mmoe_status mm_products_down(const struct mm_cpu_call *call, int64_t runs);

/* From call->dy and call->gate_up: call->dgrad, the operand w*h of dW2 in call->h, and (weight on output) the tiles'
 * parts of dw in call->dw. */
mmoe_status mm_products_dh(const struct mm_cpu_call *call, int64_t runs);

/* Of these only w*h: for rows whose other gradients nobody wants. */
mmoe_status mm_products_weighted_h(const struct mm_cpu_call *call, int64_t runs);

/* From call->dgrad: the tokens' gradients, written to the combine slots of the ranks that want them, and (weight on
 * input) the tiles' parts of dw in call->dw. */
mmoe_status mm_products_dx(const struct mm_cpu_call *call, int64_t runs);

#endif
