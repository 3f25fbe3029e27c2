/* Calls that don't go through although all ranks live: refusals, other calls, aborts, broken groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"

static void run_everywhere(int world, rig_body body) {
    for (enum rig_kind kind = RIG_THREADS; kind <= RIG_PROCESSES; kind++) {
        struct crew crew = crew_of(world, kind);
        crew_run(&crew, body, &crew);
    }
}

/* ---- Refusals ------------------------------------------------------------------------------------ */

static mmoe_status refuse(mmoe_group *group, const char *reason) {
    return mm_call_refuse(group, MM_CALL_FORWARD, mm_fail(MMOE_INVALID_ARGUMENT, "%s", reason));
}

/* A refusal by each rank in turn, by several at once, several in a row; the calls between go through. */
static void take_turns_in_refusing(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    for (int refuser = 0; refuser < rank->world; refuser++) {
        char expected[80];
        snprintf(expected, sizeof expected, "rank %d refused call %u: ids[0, 1] is 99", refuser, group->call + 1);
        if (rank->rank == refuser) {
            EXPECT_FAILURE(rank, refuse(group, "ids[0, 1] is 99"), MMOE_INVALID_ARGUMENT, "ids[0, 1] is 99");
        } else {
            EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_REFUSED, expected);
        }
        RIG_OK(rank, drive_call(rank, group));
    }
    for (int i = 0; i < 5; i++) {
        if (rank->rank > 0) {
            EXPECT_FAILURE(rank, refuse(group, "not now"), MMOE_INVALID_ARGUMENT, "not now");
        } else {
            EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_REFUSED, "rank 1 refused call");
        }
    }
    RIG_OK(rank, drive_calls(rank, group, 3));
    EXPECT_FAILURE(rank, refuse(group, "all refuse"), MMOE_INVALID_ARGUMENT, "all refuse");
    RIG_OK(rank, drive_calls(rank, group, 3));
    RIG_EXPECT(rank, group->broken == MMOE_OK, "a refusal broke the group");
    mm_group_free(group);
}

static void refusals(void **state) {
    (void)state;
    run_everywhere(3, take_turns_in_refusing);
}

/* A rank that refuses does not wait for the others to come. */
static void refuse_early(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    if (rank->rank == 1) {
        usleep(300000);
        EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_REFUSED, "rank 0 refused call 1: early");
    } else {
        const double start = mm_now();
        EXPECT_FAILURE(rank, refuse(group, "early"), MMOE_INVALID_ARGUMENT, "early");
        RIG_EXPECT(rank, mm_now() - start < 0.25, "a refusal took %.2f s", mm_now() - start);
    }
    RIG_OK(rank, drive_calls(rank, group, 2));
    mm_group_free(group);
}

static void refusal_is_at_once(void **state) {
    (void)state;
    run_everywhere(2, refuse_early);
}

/* A refuser goes on to the next call while others still wait for a late rank at the refused one: that is a wait for an
 * arrival, whatever the limit for everything else. */
static void refuse_before_a_late_rank(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    if (rank->rank == 2) {
        usleep(500000);
    }
    if (rank->rank == 0) {
        EXPECT_FAILURE(rank, refuse(group, "early"), MMOE_INVALID_ARGUMENT, "early");
    } else {
        EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_REFUSED, "rank 0 refused call 1: early");
    }
    RIG_OK(rank, drive_calls(rank, group, 2));
    mm_group_free(group);
}

static void late_rank_after_a_refusal(void **state) {
    (void)state;
    struct crew crew = crew_of(3, RIG_THREADS);
    crew.config.progress_timeout_ms = 150;
    crew_run(&crew, refuse_before_a_late_rank, &crew);
}

/* ---- Other calls --------------------------------------------------------------------------------- */

static mmoe_status call_with(mmoe_group *group, const struct mm_header *header) {
    mmoe_status status = mm_call_begin(group);
    if (status != MMOE_OK) {
        return status;
    }
    struct mm_header posted = *header;
    posted.agreed.call = group->call;
    status = mm_call_post(group, &posted);
    if (status == MMOE_OK) {
        status = mm_call_meet(group);
    }
    mm_call_end(group);
    return status;
}

/* Every field of an agreement in turn differs on the last rank, and both sides are shown both values. */
static void differ_in_each_field(struct rig_rank *rank, void *context) {
    static const struct {
        size_t offset;
        const char *says;
    } fields[] = {
        {offsetof(struct mm_agreement, version), "the library version"},
        {offsetof(struct mm_agreement, max_tokens), "max_tokens of the group is"},
        {offsetof(struct mm_agreement, max_hidden), "max_hidden of the group is"},
        {offsetof(struct mm_agreement, max_top_k), "max_top_k of the group is"},
        {offsetof(struct mm_agreement, max_experts), "max_experts of the group is"},
        {offsetof(struct mm_agreement, hidden), "hidden of the layer is"},
        {offsetof(struct mm_agreement, intermediate), "intermediate of the layer is"},
        {offsetof(struct mm_agreement, experts), "experts of the layer is"},
        {offsetof(struct mm_agreement, top_k), "top_k of the layer is"},
        {offsetof(struct mm_agreement, weight_on), "weight_on of the layer is"},
        {offsetof(struct mm_agreement, activation), "activation of the layer is"},
        {offsetof(struct mm_agreement, capacity_policy), "capacity_policy of the layer is"},
        {offsetof(struct mm_agreement, capacity), "capacity of the layer is"},
        {offsetof(struct mm_agreement, drop), "drop of the layer is"},
        {offsetof(struct mm_agreement, combine), "combine of the layer is"},
        {offsetof(struct mm_agreement, forward_call), "the number of the forward"},
        {offsetof(struct mm_agreement, recompute), "recompute"},
    };
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    const bool differs = rank->rank == rank->world - 1;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct mm_header header = drive_header(group);
        int64_t *field = (int64_t *)(void *)((char *)&header.agreed + fields[i].offset);
        *field = differs ? 777 : 555;
        EXPECT_FAILURE(rank, call_with(group, &header), MMOE_MISMATCH, fields[i].says);
        RIG_EXPECT(rank, says("777 on rank") && says("555 on rank"), "%s", mmoe_last_error());
    }
    struct mm_header header = drive_header(group);
    header.agreed.limit = differs ? 7.5 : 0;
    EXPECT_FAILURE(rank, call_with(group, &header), MMOE_MISMATCH, "limit of the layer is");
    RIG_EXPECT(rank, says("7.5 on rank") && says("0 on rank"), "%s", mmoe_last_error());
    RIG_OK(rank, drive_calls(rank, group, 3));
    mm_group_free(group);
}

static void every_agreed_field(void **state) {
    (void)state;
    run_everywhere(2, differ_in_each_field);
    run_everywhere(3, differ_in_each_field);
}

static void call_in_another_order(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    struct mm_header header = drive_header(group);
    header.agreed.kind = rank->rank == 1 ? MM_CALL_BACKWARD : MM_CALL_FORWARD;
    header.agreed.layer = rank->rank == 1 ? 0 : 2;
    EXPECT_FAILURE(rank, call_with(group, &header), MMOE_MISMATCH,
                   rank->rank == 0
                       ? "rank 1 issued a backward of layer 0 where this rank issued a forward of layer 2 (call 1)"
                       : "rank 0 issued a forward of layer 2 where this rank issued a backward of layer 0 (call 1)");
    RIG_OK(rank, drive_calls(rank, group, 3));
    mm_group_free(group);
}

static void another_order(void **state) {
    (void)state;
    run_everywhere(2, call_in_another_order);
}

/* ---- Aborts -------------------------------------------------------------------------------------- */

/* A rank that is slow to meet the others may hear there already that one of them has given up. */
static mmoe_status meet_and_await(mmoe_group *group) {
    const int64_t counts[MMOE_MAX_WORLD] = {[1] = 1};
    mmoe_status status = mm_call_meet(group);
    return status == MMOE_OK ? mm_call_await(group, MM_ARRIVAL_ROWS, counts) : status;
}

/* A failure after ready(n): the others are told, wherever they wait, and the group is broken with the first cause. */
static void abort_in_the_middle(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    RIG_OK(rank, drive_calls(rank, group, 2));
    const double start = mm_now();
    if (rank->rank == 1) {
        RIG_OK(rank, mm_call_begin(group));
        const struct mm_header header = drive_header(group);
        RIG_OK(rank, mm_call_post(group, &header));
        RIG_OK(rank, mm_call_meet(group));
        RIG_EXPECT(rank, !mm_call_working(group), "an abort before any");
        mmoe_status status = mm_call_abort(group, mm_fail(MMOE_OUT_OF_MEMORY, "no memory for rows"));
        RIG_EXPECT(rank, status == MMOE_OUT_OF_MEMORY && says("no memory for rows"), "%s", mmoe_last_error());
        RIG_EXPECT(rank, mm_call_working(group), "other threads of the rank don't hear of it");
        mm_call_end(group);
        EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_BROKEN, "no memory for rows");
    } else {
        RIG_OK(rank, mm_call_begin(group));
        const struct mm_header header = drive_header(group);
        RIG_OK(rank, mm_call_post(group, &header));
        EXPECT_FAILURE(rank, meet_and_await(group), MMOE_PEER_LOST, "rank 1 gave up call 3: no memory for rows");
        EXPECT_FAILURE(rank, mm_call_check(group), MMOE_PEER_LOST, "rank 1 gave up call 3");
        mm_call_end(group);
        EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_BROKEN, "rank 1 gave up call 3: no memory for rows");
        EXPECT_FAILURE(rank, refuse(group, "too late"), MMOE_BROKEN, "rank 1 gave up call 3");
    }
    RIG_EXPECT(rank, mm_now() - start < 1, "it took %.2f s", mm_now() - start);
    mm_group_free(group);
}

static void aborts(void **state) {
    (void)state;
    run_everywhere(3, abort_in_the_middle);
}

/* Ranks that compute hear of an abort without waiting; a rank outside of calls, at its next one. */
static void hear_while_working(struct rig_rank *rank, void *context) {
    mmoe_group *group;
    RIG_OK(rank, crew_join(context, rank->rank, &group));
    if (rank->rank == 2) { /* does not come to the call before it is aborted */
        usleep(200000);
        EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_PEER_LOST, "rank 0 gave up call 1: enough");
        EXPECT_FAILURE(rank, drive_call(rank, group), MMOE_BROKEN, "rank 0 gave up call 1: enough");
        mm_group_free(group);
        return;
    }
    RIG_OK(rank, mm_call_begin(group));
    const struct mm_header header = drive_header(group);
    RIG_OK(rank, mm_call_post(group, &header));
    if (rank->rank == 0) {
        while (atomic_load(&mm_control(group, 0)->ready[1].value) != 1) { /* rank 1 shall have begun */
        }
        mm_call_abort(group, mm_fail(MMOE_SYSTEM, "enough"));
    } else {
        const double limit = mm_now() + 5;
        while (!mm_call_working(group) && mm_now() < limit) {
        }
        EXPECT_FAILURE(rank, mm_call_check(group), MMOE_PEER_LOST, "rank 0 gave up call 1: enough");
    }
    mm_call_end(group);
    mm_group_free(group);
}

static void aborts_reach_who_works(void **state) {
    (void)state;
    run_everywhere(3, hear_while_working);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(refusal_is_at_once),
        cmocka_unit_test(late_rank_after_a_refusal),
        cmocka_unit_test(every_agreed_field),
        cmocka_unit_test(another_order),
        cmocka_unit_test(aborts),
        cmocka_unit_test(aborts_reach_who_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
