/* A crew: W ranks that make their group themselves, so that tests see set-up succeed and fail.
 *
 * Built on the rig's ranks: RIG_EXPECT reports, the watchdog names who hangs. Ranks that are processes meet in a folder
 * of their own. Whatever happened to them, in the end no process, socket, shared-memory object or file may be left. */
#ifndef GROUP_CREW_H
#define GROUP_CREW_H

#include "backend/backend.h"
#include "rig/world.h"

struct crew {
    int world;
    enum rig_kind kind;
    int seconds;          /* the watchdog's limit; 0: 60 */
    uint64_t expendable;  /* bit r: rank r may die or stop; it is killed when the others are done */
    const char *path;     /* set by crew_run: where the ranks may meet */
    mmoe_group *group[8]; /* ranks that are threads: set by crew_run */
    mmoe_group_config config;
    const struct mm_hook *hook;
    const struct mm_backend *backend; /* set by crew_of: one without a layer */
};

/* Time limits of 20 s, room for a few small tokens. */
struct crew crew_of(int world, enum rig_kind kind);

/* Runs `body` on every rank. `context` must be of rig_shared() when ranks that are processes write to it. */
void crew_run(struct crew *crew, rig_body body, void *context);

/* Makes a rank's group: at the crew's path, or the handle of the crew's threads. */
mmoe_status crew_join(const struct crew *crew, int rank, mmoe_group **group);

/* Whether a rendezvous by name has a socket on this machine. */
bool crew_has_socket(const char *rendezvous);

/* Whether the thread's last failure says so. */
bool says(const char *text);

/* In a function of a rank that returns nothing. */
#define EXPECT_FAILURE(rank, call, expected, text)                                                                     \
    do {                                                                                                               \
        mmoe_status got = (call);                                                                                      \
        RIG_EXPECT(rank, got == (expected) && says(text), "%s: %s", mmoe_status_name(got), mmoe_last_error());         \
    } while (0)

/* A backend without a layer: the group alone is tested. */
extern const struct mm_backend crew_backend;

#endif
