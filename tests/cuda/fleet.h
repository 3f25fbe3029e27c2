/* Groups on a machine of eight fake GPUs, which really map one another's memory, also between processes. */
#ifndef CUDA_FLEET_H
#define CUDA_FLEET_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "group/crew.h"

#define RANKS 3 /* where one number is enough */

/* Set-up of a test of cmocka: the eight GPUs, whole. */
int use_fleet(void **state);

/* A crew whose backend is that of the GPUs. */
struct crew crew_on(int world, enum rig_kind kind);

/* Of this process. */
int open_descriptors(void);

/* Of a rank that is a process, with so many descriptors before. */
void expect_nothing_left(struct rig_rank *rank, int descriptors);

/* Rank r's block as `group` has it mapped; the fake's addresses can be used here. */
uint32_t *block_of(const mmoe_group *group, int rank);

/* Where writer leaves a word in the block of owner as `group` has it mapped, and the word. */
uint32_t *place(const mmoe_group *group, int writer, int owner);
uint32_t mark(int writer, int owner);

/* Makes a group whose ranks write to one another and find what was written, and ends it: nothing is left. Of the ranks
 * on the first GPUs, or on these in turn. */
void run_sharing(int world, enum rig_kind kind);
void run_sharing_of(const int *gpu, int gpus, int world, enum rig_kind kind);

#endif
