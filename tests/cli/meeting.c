/* Processes of the command that tell rank 0 their numbers: one that ends is noticed, whatever the others do. */
#include "meeting.h"

/* cmocka needs these first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

#define WORLD 3

typedef int part(struct meeting *meeting, char error[256]);

/* Each rank plays its part in a process of its own once all have met; rank 0 in this one, whose result it returns. */
static int play(part *const parts[WORLD], char error[256]) {
    char place[64];
    snprintf(place, sizeof place, "meeting test %d", getpid());
    setenv("MMOE_RENDEZVOUS", place, 1);
    pid_t others[WORLD];
    for (int rank = WORLD - 1; rank >= 0; rank--) {
        others[rank] = rank > 0 ? fork() : getpid();
        if (rank == 0 || others[rank] == 0) {
            struct meeting meeting;
            alarm(30);
            int result = meeting_open(&meeting, rank, WORLD, error, 256) ? parts[rank](&meeting, error) : -1;
            meeting_close(&meeting);
            if (rank > 0)
                _exit(result);
            for (int other = 1; other < WORLD; other++) {
                kill(others[other], SIGKILL);
                waitpid(others[other], NULL, 0);
            }
            return result;
        }
    }
    return -1;
}

/* 1 when everybody's number is there, 0 when somebody can't be reached. */
static int gather(struct meeting *meeting, char error[256]) {
    int mine = 10 + meeting->rank, all[WORLD];
    if (!meeting_gather(meeting, &mine, sizeof mine, all, error, 256))
        return 0;
    return all[0] == 10 && all[1] == 11 && all[2] == 12;
}

static int stop(struct meeting *meeting, char error[256]) {
    (void)meeting, (void)error;
    return raise(SIGSTOP);
}

static int leave(struct meeting *meeting, char error[256]) {
    (void)meeting, (void)error;
    return 0;
}

static void numbers_reach_rank_0(void **state) {
    (void)state;
    char error[256] = "";
    assert_int_equal(play((part *const[]){gather, gather, gather}, error), 1);
    assert_string_equal(error, "");
}

static void a_rank_that_left_is_named(void **state) {
    (void)state;
    char error[256] = "";
    assert_int_equal(play((part *const[]){gather, leave, gather}, error), 0);
    assert_non_null(strstr(error, "rank 1"));
}

/* Rank 2 leaves because of the one that has stopped; rank 0 must not wait for that one first. */
static void a_stopped_rank_hides_no_other(void **state) {
    (void)state;
    char error[256] = "";
    double begin = clock_now();
    assert_int_equal(play((part *const[]){gather, stop, leave}, error), 0);
    assert_non_null(strstr(error, "rank 2"));
    assert_true(clock_now() - begin < 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_reach_rank_0),
        cmocka_unit_test(a_rank_that_left_is_named),
        cmocka_unit_test(a_stopped_rank_hides_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
