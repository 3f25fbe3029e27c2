/* Shared by the tests of ranks that get lost in a call, a forward or a backward: the last rank, the victim, is. */
#ifndef GPU_LOSS_H
#define GPU_LOSS_H

#include <pthread.h>

#include "gpus.h"

#define LOSS_LIMIT_MS 1500
#define LOSS_AT_ONCE 1.0 /* seconds, for what waits for nobody; of a machine that may be busy */

/* Seconds in which a lost rank is to be named. */
#define LOSS_IN_TIME (LOSS_LIMIT_MS * 1e-3 + 2)

/* Simulated time has nothing to do with that of the clock. */
bool took_longer(double seconds, double than);

int victim_of(int world);

/* In which call it is lost. */
enum lost_in { FORWARD, BACKWARD, KINDS };

/* What the ranks, which may be processes, share. */
struct loss {
    pthread_barrier_t met, named;
    struct rig_batch batch;
    mmoe_capacity_policy policy;
    enum lost_in kind;
    const struct rig_options *options;
    bool report; /* calls are given one: they wait for their end */
    int signal;  /* what becomes of the victim, */
    bool inside; /* in a call or between two */
};

/* What a rank makes its calls with. */
struct member {
    mmoe_layer *layer;
    mmoe_saved *saved;
};

#define LOSS_TOP_K 2
#define LOSS_TOKENS 20

/* Rows are kept and gradients overwritten; or the plan is kept and they are added. Of a new loss the first under
 * growth, the second under a fixed capacity. */
extern const struct rig_options loss_overwritten, loss_added;
struct loss *loss_make(int world, enum lost_in kind, mmoe_capacity_policy policy, int64_t most);
void loss_free(struct loss *loss);

/* With short time limits; a victim that is a process is not waited for. */
void loss_run(struct loss *loss, rig_body body, enum rig_kind kind);

/* The machine and its GPUs are as good as before. */
void another_group_works(const struct loss *before);

bool member_join(struct rig_rank *rank, const struct loss *loss, struct member *member);
void member_leave(struct member *member);

/* Forwards and backwards, all of them good. */
void good_steps(struct rig_rank *rank, const struct member *member, struct loss *loss, int steps);

struct attempt {
    struct rig_call call;
    struct rig_placed placed;
    mmoe_report report;
    mmoe_status status;
    double seconds;
};

bool attempt_place(struct rig_rank *rank, const struct member *member, const struct loss *loss,
                   struct attempt *attempt);

/* A backward's forward has been made before. */
void attempt_begin(const struct member *member, const struct loss *loss, struct attempt *attempt);
bool attempt_make(struct rig_rank *rank, const struct member *member, const struct loss *loss, struct attempt *attempt);

/* After it the call's memory is gone. */
bool attempt_fetch(struct rig_rank *rank, struct attempt *attempt);

/* What a call must be: nothing looks like a result. What was to be added to is as it was, unless the thread's sentence
 * says that it is not. */
bool is_spoilt(const struct loss *loss, const struct rig_call *call);

bool names_victim(struct rig_rank *rank, mmoe_status status, const char *step);

/* The first failure: told in time, by the call or, when it doesn't wait, by whoever asks after it. */
bool is_first_failure(struct rig_rank *rank, const struct loss *loss, struct attempt *attempt, bool waits,
                      const char *step);

/* Every call after that fails at once with the same sentence and writes nothing. */
bool is_broken(struct rig_rank *rank, const struct member *member, const struct loss *loss);

/* The rank's group is destroyed in so many seconds. */
bool ends(struct rig_rank *rank, struct member *member, double seconds);

#endif
