/* Ranks meet processes of their own user alone, on either side. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "base/clock.h"
#include "crew.h"
#include "drive.h"
#include "group/hello.h"
#include "group/rendezvous.h"

#define OTHER_USER 65534
#define STRANGER_SECONDS 20
#define NOT_RUN 77 /* as ctest is told */

/* How a stranger ends. */
enum end { TURNED_AWAY, LET_IN, ASTRAY };

struct visit {
    struct crew crew;
    char rendezvous[64]; /* an abstract name: any user may connect to it, whatever the rights of files are */
    struct mm_place place;
    _Atomic bool there; /* the stranger listens */
};

static struct visit *new_visit(void) {
    struct visit *visit = rig_shared(sizeof *visit);
    visit->crew = crew_of(2, RIG_PROCESSES);
    snprintf(visit->rendezvous, sizeof visit->rendezvous, "name:users %d", (int)getpid());
    assert_int_equal(mm_place_of(visit->rendezvous, "", &visit->place), MMOE_OK);
    return visit;
}

/* Another process, of another user; its life is bounded, since it may not be killed with its parent. */
static pid_t start_stranger(enum end (*body)(struct visit *), struct visit *visit) {
    const pid_t id = fork();
    if (id == 0) {
        alarm(STRANGER_SECONDS);
        _exit(setuid(OTHER_USER) == 0 ? (int)body(visit) : ASTRAY);
    }
    return id;
}

static void expect_turned_away(struct rig_rank *rank, pid_t stranger) {
    int status = 0;
    RIG_EXPECT(rank, stranger > 0 && waitpid(stranger, &status, 0) == stranger, "no stranger");
    RIG_EXPECT(rank, WIFEXITED(status) && WEXITSTATUS(status) == TURNED_AWAY, "the stranger ended with 0x%x", status);
}

static mmoe_status join(const struct visit *visit, int rank, mmoe_group **group) {
    return mm_group_make_processes(&visit->crew.config, visit->rendezvous, rank, visit->crew.world, &crew_backend, NULL,
                                   group);
}

/* Blocks where the sockets of the library do not. */
static ssize_t await_byte(int socket, char *byte) {
    ssize_t count;
    while ((count = recv(socket, byte, 1, 0)) < 0 && (errno == EAGAIN || errno == EINTR)) {
        usleep(1000);
    }
    return count;
}

/* ---- A guest ------------------------------------------------------------------------------------- */

/* Says what rank 1 would say. */
static enum end come_as_rank_1(struct visit *visit) {
    mmoe_group_config config = visit->crew.config;
    config.backend = crew_backend.name;
    const struct mmoe_group claimed = {.config = config, .rank = 1, .world = visit->crew.world};
    const struct mm_hello hello = mm_hello_of(&claimed, 0);
    int host, error;
    while ((host = mm_place_connect(&visit->place, &error)) < 0) {
        usleep(1000);
    }
    char welcome;
    send(host, &hello, sizeof hello, MSG_NOSIGNAL); /* unless the host has closed already */
    return await_byte(host, &welcome) <= 0 ? TURNED_AWAY : LET_IN;
}

static void come_after_a_stranger(struct rig_rank *rank, void *context) {
    struct visit *visit = context;
    if (rank->rank == 1) {
        expect_turned_away(rank, start_stranger(come_as_rank_1, visit));
    }
    mmoe_group *group;
    RIG_OK(rank, join(visit, rank->rank, &group));
    RIG_OK(rank, drive_calls(rank, group, 3));
    mm_group_free(group);
}

/* It is not listened to, and the rank whose place it wanted comes in. */
static void a_guest_of_another_user(void **state) {
    (void)state;
    struct visit *visit = new_visit();
    crew_run(&visit->crew, come_after_a_stranger, visit);
    rig_shared_free(visit);
}

/* ---- A host -------------------------------------------------------------------------------------- */

/* Listens where rank 0 would. Whoever comes must say nothing. */
static enum end wait_for_guests(struct visit *visit) {
    int listener;
    if (mm_place_listen(&visit->place, &listener) != MMOE_OK || listener < 0) {
        return ASTRAY;
    }
    atomic_store(&visit->there, true);
    for (int guests = 0; guests < visit->crew.world;) {
        char byte;
        const int guest = accept(listener, NULL, NULL);
        if (guest >= 0 && await_byte(guest, &byte) > 0) {
            return LET_IN;
        }
        guests += guest >= 0;
        usleep(1000);
    }
    return TURNED_AWAY;
}

static void find_a_stranger(struct rig_rank *rank, void *context) {
    struct visit *visit = context;
    const pid_t stranger = rank->rank == 0 ? start_stranger(wait_for_guests, visit) : 0;
    const double start = mm_now();
    while (!atomic_load(&visit->there) && mm_now() - start < STRANGER_SECONDS) {
        usleep(1000);
    }
    mmoe_group *group;
    EXPECT_FAILURE(rank, join(visit, rank->rank, &group), MMOE_SYSTEM, "rank 0 can't be spoken to during set-up");
    RIG_EXPECT(rank, says(strerror(EPERM)), "%s", mmoe_last_error());
    RIG_EXPECT(rank, mm_now() - start < 10, "it took %.1f s", mm_now() - start);
    if (rank->rank == 0) {
        expect_turned_away(rank, stranger);
    }
}

static void a_host_of_another_user(void **state) {
    (void)state;
    struct visit *visit = new_visit();
    crew_run(&visit->crew, find_a_stranger, visit);
    rig_shared_free(visit);
}

static bool can_be_another_user(void) {
    const pid_t id = fork();
    if (id == 0) {
        _exit(setuid(OTHER_USER) == 0 && geteuid() == OTHER_USER ? 0 : 1);
    }
    int status = 1;
    return id > 0 && waitpid(id, &status, 0) == id && status == 0 && geteuid() != OTHER_USER;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guest_of_another_user),
        cmocka_unit_test(a_host_of_another_user),
    };
    if (!can_be_another_user()) {
        print_message("not run: this user may not become another one\n");
        return NOT_RUN;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
