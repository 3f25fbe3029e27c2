/* A world: a function run on W ranks, as threads or as forked processes, under a watchdog.
 *
 * Ranks report with RIG_EXPECT; the main thread fails the running cmocka test with the text of every rank that
 * failed. A rank that hangs is named. */
#ifndef RIG_WORLD_H
#define RIG_WORLD_H

#include <pthread.h>
#include <stdbool.h>

#include "group/group.h"
#include "rig/random.h"
#include "rig/small.h"

enum rig_kind { RIG_THREADS, RIG_PROCESSES, RIG_ONE_GPU /* threads that share it, see one_gpu.h */ };

struct rig_share;

#define RIG_NO_VICTIM (-1)

struct rig_world {
    int world;
    enum rig_kind kind;
    mmoe_group_config config;
    struct mm_hook hook; /* at NULL: none */
    int seconds;         /* wall-clock limit; 0: 60 */
    int poison;          /* byte that fills fresh memory and the segments' data; 0: 0xff, NaN */
    int victim;          /* processes: a rank that is to be killed or stopped, not waited for; RIG_NO_VICTIM */
};

struct rig_rank {
    int rank, world;
    mmoe_group *group;
    struct rig_share *share; /* of a GPU that the ranks share; NULL: they don't */
    bool failed;
    char failure[640];
};

typedef void (*rig_body)(struct rig_rank *rank, void *context);

/* A configuration for a layer of these sizes, with time limits fit for tests. */
struct rig_world rig_world_make(int world, enum rig_kind kind, int64_t max_tokens, int64_t hidden, int64_t top_k,
                                int64_t experts);

/* Makes the group, runs `body` on every rank, destroys the group. The body destroys the layers it makes. Memory that
 * ranks and caller share must come from rig_shared(). */
void rig_world_run(const struct rig_world *world, rig_body body, void *context);

/* A barrier of `world` ranks of any kind; for forked ones in memory of rig_shared(). */
void rig_barrier_make(pthread_barrier_t *barrier, int world);

/* Zeroed memory that forked ranks and the caller share. */
void *rig_shared(size_t bytes);
void rig_shared_free(void *memory);

/* Keeps the first failure of a rank; returns false. */
bool rig_fail(struct rig_rank *rank, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* In a function of a rank that returns nothing, or bool. */
#define RIG_EXPECT(rank, condition, ...)                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            rig_fail(rank, __FILE__, __LINE__, __VA_ARGS__);                                                           \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)
#define RIG_TRY(rank, condition, ...)                                                                                  \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return rig_fail(rank, __FILE__, __LINE__, __VA_ARGS__);                                                    \
    } while (0)

/* RIG_EXPECT of a call that must succeed. */
#define RIG_OK(rank, call)                                                                                             \
    do {                                                                                                               \
        mmoe_status rig_status = (call);                                                                               \
        RIG_EXPECT(rank, rig_status == MMOE_OK, "%s: %s: %s", #call, mmoe_status_name(rig_status), mmoe_last_error()); \
    } while (0)

/* The backend under test: "cpu", or what MMOE_TEST_BACKEND says. */
const char *rig_backend(void);

/* `full`, or `small` under MMOE_TEST_SCALE=small, which it prints with the name of what was reduced. */
int rig_scaled(const char *what, int full, int small);

#endif
