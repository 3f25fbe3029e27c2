/* Shared by the tests of the layer over several GPUs, a rank on each: real ones, or as many simulated ones as
 * MEGAMOE_SIM_DEVICES says. Or, with MMOE_TEST_RANKS, over at most so many ranks that share GPUs: with
 * MEGAMOE_SHARE_GPUS processes that the GPUs run in turn, else threads on one GPU at the same time (rig/one_gpu.h).
 * MMOE_TEST_BACKEND is "cuda". */
#ifndef GPU_GPUS_H
#define GPU_GPUS_H

#include "support.h"

/* What the running tests' ranks are, and how many there may be. */
extern enum rig_kind gpus_kind;
extern int gpus_most;

struct gpus_tests {
    const struct CMUnitTest *tests;
    size_t count;
};

/* Runs the first tests with ranks that are processes, then the others with ranks that are threads. Simulated GPUs lie
 * in one process; ranks that share GPUs run the others. The result of main(): 77, "skipped", where there are fewer
 * GPUs than `least`. */
int gpus_main(int least, struct gpus_tests processes, struct gpus_tests threads);

#define GPUS_TESTS(array) ((struct gpus_tests){array, sizeof(array) / sizeof *(array)})

int gpus_least(void);
#define GPUS_EACH_WORLD(world) (int world = gpus_least(); world <= gpus_most; world *= 2)

/* Ends the running test, and says so, on more than two GPUs at reduced size. */
void gpus_two_at_small_size(void);

/* Leaves so many multiprocessors to others from the rank's next call on; where ranks share a GPU, as many as it has to.
 */
void gpus_leave(struct rig_rank *rank, int multiprocessors);

/* T of each rank: `most`, one less, none at all, one, and so on. */
void gpus_uneven_tokens(int world, int64_t most, int64_t *tokens);

/* Batches one after another on one layer, as gpus_kind says. */
void gpus_run(struct rig_batch *batches, int count, const struct rig_options *options);

/* A call that the last rank, the culprit, makes fail, as the ranks are told. In the texts {culprit} and {rank} stand
 * for that rank and this one, {call}, {call-1} and {call-2} for the number of the call and of those before. */
struct gpus_failure {
    const char *name;
    mmoe_status others, own;
    const char *others_text, *own_text;
};

bool gpus_is_culprit(const struct rig_rank *rank);
bool gpus_told(struct rig_rank *rank, const struct gpus_failure *failure, unsigned call, mmoe_status status);

/* What tells a failure that the device has found after the call has returned, unless it waits for its end. */
enum gpus_teller { GPUS_BY_CALL, GPUS_BY_CHECK, GPUS_BY_NEXT_CALL, GPUS_BY_REPORT, GPUS_TELLERS };

/* Whether a failed backward that was fetched has left dx, dw and overwritten gradients of weights NaN, and those that
 * are added to as they were. */
bool gpus_gradients_are_spoilt(const struct rig_call *call);

/* Of a batch: what a rank's experts are sent, and the most that any is sent. */
int64_t gpus_demand(const struct rig_batch *batch, int rank);
int64_t gpus_most_demand(const struct rig_batch *batch);

#endif
