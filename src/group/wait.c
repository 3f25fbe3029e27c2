/* Waiting: a short spin, then sleep on this rank's doorbell.
 *
 * Every post to a rank changes a flag first and the doorbell afterwards. A waiter reads the doorbell before the flags
 * and sleeps only while the doorbell still has that value, so a post between the two wakes it. It sleeps for one beat
 * at most, for what rings no bell: a peer's death and the time limits. */
#include "group/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SPIN_ROUNDS 64
#define BEAT_SECONDS 0.05
#define STOPPED_SECONDS 1.0
#define PROGRESS_TICKS_PER_SECOND 50

/* What a waiter has seen of a peer: the time of its last progress and of its last sign of life; both begin with the
 * wait. */
struct sight {
    uint32_t progress, pulse;
    double progressed, stirred;
};

struct wait {
    const struct mmoe_group *group;
    const struct mm_awaited *awaited;
    double last_beat;
    struct sight sight[MMOE_MAX_WORLD];
};

static bool arrived(const struct wait *wait, int rank) {
    const struct mm_awaited *awaited = wait->awaited;
    return mm_reached(atomic_load_explicit(&awaited->flag[rank]->value, memory_order_acquire), awaited->target[rank]);
}

static bool all_arrived(const struct wait *wait) {
    for (int r = 0; r < wait->group->world; r++) {
        if (!arrived(wait, r)) {
            return false;
        }
    }
    return true;
}

static uint32_t doorbell(const struct mmoe_group *group) {
    return atomic_load(&mm_control(group, group->rank)->doorbell.value);
}

/* Not private: the doorbell may lie in memory that processes share. */
static void sleep_on_doorbell(const struct mmoe_group *group, uint32_t seen) {
    const struct timespec beat = {.tv_nsec = (long)(BEAT_SECONDS * 1e9)};
    syscall(SYS_futex, &mm_control(group, group->rank)->doorbell.value, FUTEX_WAIT, seen, &beat, NULL, 0);
}

void mm_ring(const struct mmoe_group *group, int peer) {
    _Atomic uint32_t *bell = &mm_control(group, peer)->doorbell.value;
    atomic_fetch_add(bell, 1);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The value is the time in ticks: only the first call in a tick writes. */
void mm_show_progress(const struct mmoe_group *group) {
    _Atomic uint32_t *progress = &mm_control(group, group->rank)->progress.value;
    uint32_t tick = (uint32_t)(uint64_t)(mm_now() * PROGRESS_TICKS_PER_SECOND);
    if (atomic_load_explicit(progress, memory_order_relaxed) != tick) {
        atomic_store_explicit(progress, tick, memory_order_relaxed);
    }
}

int mm_aborted_rank(const struct mmoe_group *group) {
    const struct mm_control *control = mm_control(group, group->rank);
    for (int r = 0; r < group->world; r++) {
        if (atomic_load_explicit(&control->abort[r].posted, memory_order_acquire) != 0) {
            return r;
        }
    }
    return -1;
}

mmoe_status mm_abort_status(const struct mmoe_group *group, int rank) {
    const struct mm_abort *abort = &mm_control(group, group->rank)->abort[rank];
    return mm_fail((mmoe_status)abort->status, "%.*s", MM_REASON_BYTES, abort->reason);
}

/* Notes which peers have stirred since the last look. */
static void look(struct wait *wait, double now) {
    for (int r = 0; r < wait->group->world; r++) {
        struct mm_control *control = mm_control(wait->group, r);
        struct sight *sight = &wait->sight[r];
        uint32_t progress = atomic_load_explicit(&control->progress.value, memory_order_relaxed);
        uint32_t pulse = atomic_load_explicit(&control->pulse.value, memory_order_relaxed);
        if (progress != sight->progress) {
            sight->progressed = now;
        }
        if (progress != sight->progress || pulse != sight->pulse) {
            sight->stirred = now;
        }
        sight->progress = progress;
        sight->pulse = pulse;
    }
}

/* A peer that has done all that is awaited from it may have left in good order, and one that gave up may have told why,
 * so its flag and the aborts are looked at again after it was seen to be gone. */
static mmoe_status check_lives(const struct wait *wait) {
    const struct mmoe_group *group = wait->group;
    for (int r = 0; r < group->world; r++) {
        if (!arrived(wait, r) && !mm_memory_alive(group->memory, r) && !arrived(wait, r)) {
            const int aborted = mm_aborted_rank(group);
            if (aborted >= 0) {
                return mm_abort_status(group, aborted);
            }
            return mm_fail(MMOE_PEER_LOST, "rank %d has died or left the group: rank %d was %s from it in call %u", r,
                           group->rank, wait->awaited->doing, group->call);
        }
    }
    return MMOE_OK;
}

static int64_t limit_ms(const struct wait *wait) {
    const mmoe_group_config *config = &wait->group->config;
    return wait->awaited->patience == MM_UNTIL_ARRIVED ? config->arrive_timeout_ms : config->progress_timeout_ms;
}

/* Time counts from the start of the wait, or from the last time a peer was seen to work: one that is still busy with an
 * earlier call is not late. Others may be late because they wait for the one that is to blame, but then they stir: the
 * one that has been silent for longest is named. */
static mmoe_status check_limits(const struct wait *wait, double now) {
    const struct mmoe_group *group = wait->group;
    int silent = -1;
    for (int r = 0; r < group->world; r++) {
        const struct sight *sight = &wait->sight[r];
        bool late = !arrived(wait, r) && (now - sight->progressed) * 1e3 >= (double)limit_ms(wait);
        if (late && (silent < 0 || sight->stirred < wait->sight[silent].stirred)) {
            silent = r;
        }
    }
    if (silent < 0) {
        return MMOE_OK;
    }
    return mm_fail(MMOE_TIMEOUT, "rank %d %s %lld ms: rank %d was %s from it in call %u", silent,
                   wait->awaited->patience == MM_UNTIL_ARRIVED ? "did not come within" : "made no progress for",
                   (long long)limit_ms(wait), group->rank, wait->awaited->doing, group->call);
}

static bool spin(const struct wait *wait) {
    for (int round = 0; round < SPIN_ROUNDS; round++) {
        if (all_arrived(wait)) {
            return true;
        }
    }
    return false;
}

/* A beat that took very long means that this rank was stopped itself, perhaps together with all others: that time
 * counts against nobody. */
static void forgive_own_stop(struct wait *wait, double now) {
    const double stopped = now - wait->last_beat;
    if (stopped < STOPPED_SECONDS) {
        return;
    }
    for (int r = 0; r < wait->group->world; r++) {
        wait->sight[r].progressed += stopped;
        wait->sight[r].stirred += stopped;
    }
}

/* What rings no bell, once a beat. */
static mmoe_status beat(struct wait *wait, double now) {
    atomic_fetch_add_explicit(&mm_control(wait->group, wait->group->rank)->pulse.value, 1, memory_order_relaxed);
    forgive_own_stop(wait, now);
    wait->last_beat = now;
    look(wait, now);
    mmoe_status status = check_lives(wait);
    return status == MMOE_OK ? check_limits(wait, now) : status;
}

static void begin(struct wait *wait) {
    wait->last_beat = mm_now();
    look(wait, wait->last_beat);
    for (int r = 0; r < wait->group->world; r++) {
        wait->sight[r].progressed = wait->sight[r].stirred = wait->last_beat;
    }
}

mmoe_status mm_wait(const struct mmoe_group *group, const struct mm_awaited *awaited) {
    struct wait wait = {.group = group, .awaited = awaited};
    if (spin(&wait)) {
        return MMOE_OK;
    }
    begin(&wait);
    for (;;) {
        const uint32_t seen = doorbell(group);
        if (all_arrived(&wait)) {
            return MMOE_OK;
        }
        const int aborted = mm_aborted_rank(group);
        if (aborted >= 0) {
            return mm_abort_status(group, aborted);
        }
        const double now = mm_now();
        mmoe_status status = now - wait.last_beat >= BEAT_SECONDS ? beat(&wait, now) : MMOE_OK;
        if (status != MMOE_OK) {
            return status;
        }
        sleep_on_doorbell(group, seen);
    }
}
