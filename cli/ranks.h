/* Runs a function once on every rank of a group: on threads of this process, or, under a launcher such as torchrun, on
 * this process alone as one of the ranks. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "problem.h"
#include "progress.h"

struct ranks;

/* One rank, as the function sees it. */
struct rank {
    int index, world;
    mmoe_group *group;
    struct ranks *ranks;
    int code; /* exit code of this rank's first failure, with its sentence */
    mmoe_status status;
    char error[768];
};

typedef void rank_body(struct rank *rank, void *context);

/* Makes the group that the problem needs and runs `body` on each rank here. Returns the worst exit code of the ranks,
 * after saying why on stderr. */
int ranks_run(const struct problem *problem, rank_body *body, void *context);

/* The configuration of that group, for the sizes of its memory. */
mmoe_group_config ranks_group_config(const struct problem *problem);

/* Whether this process prints results: it has rank 0. */
static inline bool ranks_print(const struct problem *problem) {
    return problem->rank <= 0;
}

/* Records a failure of this rank and returns `code`. The second takes the library's status and sentence. */
int rank_fail(struct rank *rank, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int rank_fail_status(struct rank *rank, mmoe_status status);

/* Collective: every rank's `mine`, in rank order, into `all` (NULL: not wanted here). Also a barrier. */
int rank_gather(struct rank *rank, const void *mine, size_t bytes, void *all);

/* Collective: whether every rank is without failure so far. A rank that goes on only then leaves no other waiting. */
bool rank_all_well(struct rank *rank);

/* Shown once for all ranks here. */
struct progress *rank_progress(struct rank *rank);

#endif
