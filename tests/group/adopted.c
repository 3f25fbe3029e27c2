/* Groups in memory that the caller made, whose ranks differ: told on every rank before anything is written at a place
 * that depends on what they differ in (B16). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"

#define RANKS 3
#define LIMIT_MS 300
#define LARGE 64

/* What each rank believes, and what all of them must be told. */
struct meeting {
    struct crew crew;
    struct {
        mmoe_group_config config;
        int world;
        bool absent;
    } as[RANKS];
    void *segment[RANKS];
    size_t bytes[RANKS]; /* of each segment: what its owner asks for */
    const char *says[2];
    int come;         /* ranks that come */
    _Atomic int made; /* handles so far */
    double started;   /* before any rank began */
};

static struct meeting *meeting_of(int world) {
    struct meeting *meeting = rig_shared(sizeof *meeting);
    meeting->crew = crew_of(world, RIG_PROCESSES);
    meeting->come = world;
    for (int r = 0; r < world; r++) {
        meeting->as[r].config = meeting->crew.config;
        meeting->as[r].world = world;
    }
    return meeting;
}

/* Each segment is as large as its owner believes, whatever the others think. */
static void make_segments(struct meeting *meeting) {
    for (int r = 0; r < meeting->crew.world; r++) {
        meeting->bytes[r] = mm_layout_of(&meeting->as[r].config, meeting->as[r].world).bytes;
        meeting->segment[r] = rig_shared(meeting->bytes[r]);
    }
}

static void end(struct meeting *meeting) {
    for (int r = 0; r < meeting->crew.world; r++) {
        rig_shared_free(meeting->segment[r]);
    }
    rig_shared_free(meeting);
}

/* Nothing has been written but aborts and introductions. */
static void expect_unwritten(const struct meeting *meeting) {
    for (int r = 0; r < meeting->crew.world; r++) {
        const unsigned char *segment = meeting->segment[r];
        for (size_t i = offsetof(struct mm_control, rows_arrived); i < meeting->bytes[r]; i++) {
            if (segment[i] != 0) {
                fail_msg("byte %zu of the segment of rank %d was written", i, r);
            }
        }
    }
}

static mmoe_status adopt(struct meeting *meeting, int rank, mmoe_group **group) {
    return mm_group_make_adopted(&meeting->as[rank].config, rank, meeting->as[rank].world, meeting->segment,
                                 &crew_backend, NULL, group);
}

static void expect_told(struct rig_rank *rank, const struct meeting *meeting, mmoe_group *group, mmoe_status expected) {
    const double start = mm_now();
    mmoe_status status = drive_call(rank, group);
    RIG_EXPECT(rank, status == expected, "%s: %s", mmoe_status_name(status),
               status == MMOE_OK ? "" : mmoe_last_error());
    RIG_EXPECT(rank, mm_now() - start < 10, "it took %.1f s", mm_now() - start);
    for (int i = 0; i < 2 && meeting->says[i] != NULL; i++) {
        RIG_EXPECT(rank, strstr(mmoe_last_error(), meeting->says[i]) != NULL, "\"%s\" does not say \"%s\"",
                   mmoe_last_error(), meeting->says[i]);
    }
    status = drive_call(rank, group);
    RIG_EXPECT(rank, status == MMOE_BROKEN, "a later call: %s", mmoe_status_name(status));
}

static void await_handles(const struct meeting *meeting, int count) {
    while (atomic_load(&meeting->made) < count) {
        usleep(500);
    }
}

static void be_told_of_a_mismatch(struct rig_rank *rank, void *context) {
    struct meeting *meeting = context;
    if (meeting->as[rank->rank].absent) {
        return;
    }
    mmoe_group *group;
    RIG_OK(rank, adopt(meeting, rank->rank, &group));
    atomic_fetch_add(&meeting->made, 1);
    await_handles(meeting, meeting->come);
    expect_told(rank, meeting, group, MMOE_MISMATCH);
    mm_group_free(group);
}

static void expect_mismatch(struct meeting *meeting) {
    make_segments(meeting);
    crew_run(&meeting->crew, be_told_of_a_mismatch, meeting);
    expect_unwritten(meeting);
    end(meeting);
}

/* ---- Fields -------------------------------------------------------------------------------------- */

/* The larger number is that of rank 0 and of the last rank in turn: a rank with it would write past a peer's segment.
 */
static void b16_numbers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        int64_t usual;
    } fields[] = {
        {"max_tokens", offsetof(mmoe_group_config, max_tokens), 6},
        {"max_hidden", offsetof(mmoe_group_config, max_hidden), 8},
        {"max_top_k", offsetof(mmoe_group_config, max_top_k), 2},
        {"max_experts", offsetof(mmoe_group_config, max_experts), 8},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        for (int other = 0; other <= 1; other++) {
            struct meeting *meeting = meeting_of(2);
            *(int64_t *)(void *)((char *)&meeting->as[other].config + fields[i].offset) = LARGE;
            char says[80];
            snprintf(says, sizeof says, "%s is %lld on rank 0 and %lld on rank 1", fields[i].name,
                     (long long)(other == 0 ? LARGE : fields[i].usual),
                     (long long)(other == 1 ? LARGE : fields[i].usual));
            meeting->says[0] = says;
            expect_mismatch(meeting);
        }
    }
}

static void b16_one_of_three(void **state) {
    (void)state;
    struct meeting *meeting = meeting_of(3);
    meeting->as[1].config.max_tokens = 4000;
    meeting->says[0] = "max_tokens is ";
    meeting->says[1] = "4000 on rank 1";
    expect_mismatch(meeting);
}

static void b16_name(void **state) {
    (void)state;
    struct meeting *meeting = meeting_of(2);
    meeting->as[1].config.name = "other";
    meeting->says[0] = "name is \"\" on rank 0 and \"other\" on rank 1";
    expect_mismatch(meeting);
}

/* ---- Worlds -------------------------------------------------------------------------------------- */

/* A rank in which nobody else believes is told as well, and so are those who do not believe in it. */
static void b16_worlds(void **state) {
    (void)state;
    static const struct {
        int worlds[3]; /* 0: does not come */
        const char *says;
    } cases[] = {
        {{2, 3, 0}, "world is 2 on rank 0 and 3 on rank 1"},
        {{3, 2, 0}, "world is 3 on rank 0 and 2 on rank 1"},
        {{2, 3, 3}, "world is 2 on rank 0 and 3 on rank"},
        {{3, 2, 3}, "2 on rank 1"},
        {{2, 2, 3}, "and 3 on rank 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct meeting *meeting = meeting_of(3);
        for (int r = 0; r < 3; r++) {
            meeting->as[r].absent = cases[i].worlds[r] == 0;
            meeting->as[r].world = meeting->as[r].absent ? 3 : cases[i].worlds[r];
            meeting->come -= meeting->as[r].absent;
        }
        meeting->says[0] = cases[i].says;
        expect_mismatch(meeting);
    }
}

/* Two ranks that agree work until a third comes that believes in more. */
static void come_to_a_group_of_two(struct rig_rank *rank, void *context) {
    struct meeting *meeting = context;
    mmoe_group *group;
    if (rank->rank == 2) {
        await_handles(meeting, 2);
    }
    RIG_OK(rank, adopt(meeting, rank->rank, &group));
    if (rank->rank < 2) {
        RIG_OK(rank, drive_calls(rank, group, 3));
    }
    atomic_fetch_add(&meeting->made, 1);
    await_handles(meeting, 3);
    expect_told(rank, meeting, group, MMOE_MISMATCH);
    mm_group_free(group);
}

static void one_too_many(void **state) {
    (void)state;
    struct meeting *meeting = meeting_of(3);
    meeting->as[0].world = meeting->as[1].world = 2;
    meeting->says[0] = "world is 2 on rank";
    meeting->says[1] = "3 on rank 2";
    make_segments(meeting);
    crew_run(&meeting->crew, come_to_a_group_of_two, meeting);
    end(meeting);
}

/* ---- Versions ------------------------------------------------------------------------------------ */

/* A rank of another version of the library, which has nothing in common with this one but the front of a segment. */
static void be_of_another_version(struct rig_rank *rank, struct meeting *meeting) {
    for (int r = 0; r < rank->world; r++) {
        struct mm_control *control = meeting->segment[r];
        struct mm_introduction *introduction = &control->introduction[rank->rank];
        introduction->hello.front = (struct mm_hello_front){.magic = "megamoe\n",
                                                            .protocol = 99,
                                                            .bytes = 160,
                                                            .rank = rank->rank,
                                                            .world = rank->world,
                                                            .version = "7.8.9"};
        atomic_store(&introduction->posted.value, 1);
        atomic_fetch_add(&control->doorbell.value, 1);
    }
    struct mm_control *own = meeting->segment[rank->rank];
    const double limit = mm_now() + 10;
    while (atomic_load(&own->abort[0].posted) == 0 && mm_now() < limit) {
        usleep(500);
    }
    RIG_EXPECT(rank, atomic_load(&own->abort[0].posted) != 0, "rank 0 does not tell");
    RIG_EXPECT(rank, own->abort[0].status == MMOE_MISMATCH && strstr(own->abort[0].reason, meeting->says[0]) != NULL,
               "%s", own->abort[0].reason);
}

static void meet_another_version(struct rig_rank *rank, void *context) {
    struct meeting *meeting = context;
    if (rank->rank == rank->world - 1) {
        be_of_another_version(rank, meeting);
    } else {
        be_told_of_a_mismatch(rank, meeting);
    }
}

static void b16_versions(void **state) {
    (void)state;
    for (int world = 2; world <= 3; world++) {
        struct meeting *meeting = meeting_of(world);
        char says[40];
        snprintf(says, sizeof says, "and \"7.8.9\" on rank %d", world - 1);
        meeting->says[0] = says;
        meeting->come = world - 1;
        make_segments(meeting);
        crew_run(&meeting->crew, meet_another_version, meeting);
        expect_unwritten(meeting);
        end(meeting);
    }
}

/* ---- A rank that does not come ------------------------------------------------------------------- */

static void miss_a_rank(struct rig_rank *rank, void *context) {
    struct meeting *meeting = context;
    if (rank->rank == rank->world - 1) {
        return;
    }
    mmoe_group *group;
    RIG_OK(rank, adopt(meeting, rank->rank, &group));
    expect_told(rank, meeting, group, MMOE_TIMEOUT);
    RIG_EXPECT(rank, mm_now() - meeting->started >= LIMIT_MS * 1e-3, "given up early");
    mm_group_free(group);
}

static void a_rank_does_not_come(void **state) {
    (void)state;
    for (int world = 2; world <= 3; world++) {
        struct meeting *meeting = meeting_of(world);
        for (int r = 0; r < world; r++) {
            meeting->as[r].config.arrive_timeout_ms = LIMIT_MS;
        }
        char says[80];
        snprintf(says, sizeof says, "rank %d did not come within %d ms: rank", world - 1, LIMIT_MS);
        meeting->says[0] = says;
        meeting->says[1] = "awaiting the configuration from it in call 1";
        make_segments(meeting);
        meeting->started = mm_now();
        crew_run(&meeting->crew, miss_a_rank, meeting);
        expect_unwritten(meeting);
        end(meeting);
    }
}

/* A difference that is in sight is told rather than that somebody is missing. */
static void a_difference_is_told_first(void **state) {
    (void)state;
    struct meeting *meeting = meeting_of(3);
    meeting->as[0].config.arrive_timeout_ms = meeting->as[1].config.arrive_timeout_ms = LIMIT_MS;
    meeting->as[1].config.max_hidden = 16;
    meeting->as[2].absent = true;
    meeting->come = 2;
    meeting->says[0] = "max_hidden is 8 on rank 0 and 16 on rank 1";
    expect_mismatch(meeting);
}

/* It hears of a group that broke before it came. */
static void come_too_late(struct rig_rank *rank, void *context) {
    struct meeting *meeting = context;
    mmoe_group *group;
    if (rank->rank == 1) {
        await_handles(meeting, 1);
    }
    RIG_OK(rank, adopt(meeting, rank->rank, &group));
    expect_told(rank, meeting, group, MMOE_TIMEOUT);
    atomic_fetch_add(&meeting->made, 1);
    mm_group_free(group);
}

static void late_for_a_broken_group(void **state) {
    (void)state;
    struct meeting *meeting = meeting_of(2);
    meeting->as[0].config.arrive_timeout_ms = LIMIT_MS;
    meeting->says[0] = "rank 1 did not come within 300 ms: rank 0 was";
    make_segments(meeting);
    crew_run(&meeting->crew, come_too_late, meeting);
    expect_unwritten(meeting);
    end(meeting);
}

/* ---- Creation ------------------------------------------------------------------------------------ */

/* Creation waits for nobody: one thread makes all handles, one after another. */
static void call_with_handle(struct rig_rank *rank, void *context) {
    mmoe_group **groups = context;
    RIG_OK(rank, drive_calls(rank, groups[rank->rank], 20));
    mm_group_free(groups[rank->rank]);
}

static void one_thread_makes_all(void **state) {
    (void)state;
    struct meeting *meeting = meeting_of(3);
    mmoe_group *groups[3];
    make_segments(meeting);
    for (int r = 2; r >= 0; r--) {
        assert_int_equal(adopt(meeting, r, &groups[r]), MMOE_OK);
    }
    meeting->crew.kind = RIG_THREADS;
    crew_run(&meeting->crew, call_with_handle, groups);
    for (int r = 0; r < 3; r++) {
        mm_group_free(meeting->crew.group[r]); /* the crew's own, not used here */
    }
    end(meeting);
}

/* Memory that holds a group, or has held one, is refused. */
static void used_memory(void **state) {
    (void)state;
    struct meeting *meeting = meeting_of(2);
    make_segments(meeting);
    mmoe_group *first, *second = (mmoe_group *)1;
    assert_int_equal(adopt(meeting, 1, &first), MMOE_OK);
    assert_int_equal(adopt(meeting, 1, &second), MMOE_INVALID_ARGUMENT);
    assert_null(second);
    assert_non_null(strstr(mmoe_last_error(), "segments[1] holds a group already, expected memory that is zero"));
    mm_group_free(first);
    assert_int_equal(adopt(meeting, 1, &second), MMOE_INVALID_ARGUMENT);
    assert_int_equal(adopt(meeting, 0, &first), MMOE_OK);
    mm_group_free(first);
    end(meeting);
}

static mmoe_status refuse_memory(struct mmoe_group *group) {
    return mm_fail(MMOE_UNSUPPORTED, "segments are adopted: %d", group->adopted);
}

/* A backend is asked first, before memory is touched that may be of no use to it. */
static void memory_that_can_not_be_read(void **state) {
    (void)state;
    struct mm_backend backend = crew_backend;
    backend.group_open = refuse_memory;
    const struct crew crew = crew_of(2, RIG_THREADS);
    const size_t bytes = mm_layout_of(&crew.config, 2).bytes;
    void *segments[2];
    for (int r = 0; r < 2; r++) {
        segments[r] = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(segments[r], MAP_FAILED);
    }
    mmoe_group *group = (mmoe_group *)1;
    assert_int_equal(mm_group_make_adopted(&crew.config, 1, 2, segments, &backend, NULL, &group), MMOE_UNSUPPORTED);
    assert_null(group);
    assert_string_equal(mmoe_last_error(), "segments are adopted: 1");
    for (int r = 0; r < 2; r++) {
        munmap(segments[r], bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b16_numbers),
        cmocka_unit_test(b16_one_of_three),
        cmocka_unit_test(b16_name),
        cmocka_unit_test(b16_worlds),
        cmocka_unit_test(one_too_many),
        cmocka_unit_test(b16_versions),
        cmocka_unit_test(a_rank_does_not_come),
        cmocka_unit_test(a_difference_is_told_first),
        cmocka_unit_test(late_for_a_broken_group),
        cmocka_unit_test(one_thread_makes_all),
        cmocka_unit_test(used_memory),
        cmocka_unit_test(memory_that_can_not_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
