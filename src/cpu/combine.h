/* Results on their way back: counted at their tokens' rank, summed over k. */
#ifndef MM_CPU_COMBINE_H
#define MM_CPU_COMBINE_H

#include "cpu/state.h"

/* [H] for the result of a row: the combine slot of its token on the rank of the token. */
uint16_t *mm_combine_slot(const struct mm_cpu_call *call, int64_t row);

/* sum [H] fp32 of `count` of the rows [H] bf16, in the order of their numbers in `which`. */
void mm_sum_rows(int64_t hidden, const uint16_t *rows, const int64_t *which, int count, float *sum);

/* Tells every rank (with `wanted`; NULL: all) that its rows, each `bytes` long, are in its slots. */
mmoe_status mm_combine_arrived(struct mm_cpu_call *call, enum mm_arrival what, const bool *wanted, size_t bytes);

/* Awaits the own rows from every rank; none when `wanted` is false. */
mmoe_status mm_combine_await(struct mm_cpu_call *call, enum mm_arrival what, bool wanted);

/* out [T, H]: what came back for each token, summed in fp32 and rounded once; +0 for a token without anything. That is
 * a row for each slot, in slot order, or when `grouped` a sum for each rank, in rank order. */
mmoe_status mm_combine_sum(const struct mm_cpu_call *call, const mmoe_tensor *out, bool grouped);

/* Adds up the parts of dw (as many as its columns have tiles) of the rows of sources with `wanted` and writes them to
 * the dw slots of their ranks. */
void mm_combine_push_dw(const struct mm_cpu_call *call, int64_t parts, const bool *wanted);

/* out [T, K]: what came back for each slot; 0 where nothing did. */
void mm_combine_dw(const struct mm_cpu_call *call, const mmoe_tensor *out);

#endif
