/* Gathering the guests, as rank 0.
 *
 * Anybody may connect: what does not say a whole hello of ours is dropped. A guest that has, counts as come. When the
 * ranks disagree the host still waits a while for the rest, so that they all hear why. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "group/hello.h"
#include "group/meeting.h"
#include "group/wire.h"

#define MAX_CONNECTIONS (2 * MMOE_MAX_WORLD)
#define BAD_NEWS_SECONDS 10

struct connection {
    int socket; /* -1: none */
    bool come;  /* its hello is here; stays true when it then dies */
    size_t got;
    struct mm_hello hello;
};

struct gathering {
    struct mm_meeting *meeting;
    struct mm_hello own;
    int listener;
    struct connection connection[MAX_CONNECTIONS];
    int come, awaited;      /* guests; awaited by the largest world that a rank believes in */
    struct mm_word verdict; /* the first disagreement */
};

static void disagree(struct gathering *gathering, mmoe_status status) {
    if (gathering->verdict.status == MMOE_OK) {
        gathering->verdict = mm_word_of(status);
        gathering->meeting->deadline = fmin(gathering->meeting->deadline, mm_now() + BAD_NEWS_SECONDS);
    }
}

static void drop(struct connection *connection) {
    close(connection->socket);
    connection->socket = -1;
    connection->got = 0;
}

static struct connection *free_connection(struct gathering *gathering) {
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        if (gathering->connection[i].socket < 0 && !gathering->connection[i].come) {
            return &gathering->connection[i];
        }
    }
    return NULL;
}

static void take_in(struct gathering *gathering) {
    int made = accept4(gathering->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (made < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            disagree(gathering, mm_fail_system(errno, "rank 0 can't take in another rank"));
        }
        return;
    }
    struct connection *connection = free_connection(gathering);
    if (connection == NULL || !mm_wire_same_user(made)) {
        close(made);
        return;
    }
    connection->socket = made;
}

static void compare(struct gathering *gathering, const struct connection *guest) {
    mmoe_status status = mm_hello_compare(&gathering->own, &guest->hello);
    for (int i = 0; i < MAX_CONNECTIONS && status == MMOE_OK; i++) {
        const struct connection *other = &gathering->connection[i];
        if (other->come && other != guest) {
            status = mm_hello_compare(&other->hello, &guest->hello);
        }
    }
    if (status != MMOE_OK) {
        disagree(gathering, status);
    }
}

/* The time limit runs from the start of the rank that came first. */
static void welcome(struct gathering *gathering, struct connection *guest) {
    struct mm_meeting *meeting = gathering->meeting;
    const double now = mm_now();
    guest->come = true;
    gathering->come++;
    if (guest->hello.front.world - 1 > gathering->awaited) {
        gathering->awaited = guest->hello.front.world - 1;
    }
    if (mm_hello_is_current(&guest->hello.front)) {
        const double limit = (double)meeting->group->config.arrive_timeout_ms * 1e-3;
        meeting->deadline = fmin(meeting->deadline, now - (double)guest->hello.waited_ms * 1e-3 + limit);
    }
    compare(gathering, guest);
    mm_wire_send(guest->socket, "w", 1, now); /* if it can't be told, its end shows next */
}

/* How many bytes of a hello make sense, by those that are here. */
static size_t wanted(const struct connection *connection) {
    const struct mm_hello_front *front = &connection->hello.front;
    return connection->got >= sizeof *front && mm_hello_is_ours(front) && mm_hello_is_current(front)
               ? sizeof connection->hello
               : sizeof *front;
}

/* A guest that has come says nothing before the verdict: whatever it sends ends it. */
static void hear(struct gathering *gathering, struct connection *connection) {
    char *hello = (char *)&connection->hello;
    char extra;
    const size_t wants = wanted(connection) - connection->got;
    ssize_t count =
        recv(connection->socket, connection->come ? &extra : hello + connection->got, connection->come ? 1 : wants, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (connection->come) {
        drop(connection);
        disagree(gathering, mm_meeting_lost(gathering->meeting, connection->hello.front.rank, ECONNRESET));
        return;
    }
    connection->got += count > 0 ? (size_t)count : 0;
    const bool foreign =
        connection->got >= sizeof connection->hello.front && !mm_hello_is_ours(&connection->hello.front);
    if (count <= 0 || foreign) {
        drop(connection);
    } else if (connection->got == wanted(connection)) {
        welcome(gathering, connection);
    }
}

/* Waits for the next event, at most until the deadline. */
static void listen_once(struct gathering *gathering, double seconds) {
    struct pollfd polled[MAX_CONNECTIONS + 1];
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        polled[i] = (struct pollfd){.fd = gathering->connection[i].socket, .events = POLLIN};
    }
    polled[MAX_CONNECTIONS] = (struct pollfd){.fd = gathering->listener, .events = POLLIN};
    if (poll(polled, MAX_CONNECTIONS + 1, (int)fmin(ceil(seconds * 1e3), 1000)) <= 0) {
        return;
    }
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        if (polled[i].revents != 0) {
            hear(gathering, &gathering->connection[i]);
        }
    }
    if (polled[MAX_CONNECTIONS].revents != 0) {
        take_in(gathering);
    }
}

static bool has_come(const struct gathering *gathering, int rank) {
    bool come = false;
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        const struct connection *guest = &gathering->connection[i];
        come = come || (guest->come && guest->hello.front.rank == rank);
    }
    return come;
}

static mmoe_status missing(const struct gathering *gathering) {
    const struct mmoe_group *group = gathering->meeting->group;
    int rank = 1;
    while (rank < group->world - 1 && has_come(gathering, rank)) {
        rank++;
    }
    return mm_fail(MMOE_TIMEOUT, "rank %d did not come to the set-up within %lld ms", rank,
                   (long long)group->config.arrive_timeout_ms);
}

static void gather(struct gathering *gathering) {
    while (gathering->come < gathering->awaited) {
        const double left = gathering->meeting->deadline - mm_now();
        if (left <= 0) {
            disagree(gathering, missing(gathering));
            return;
        }
        listen_once(gathering, left);
    }
}

/* Tells the verdict to those who came, and keeps the connections when it is good. */
static void conclude(struct gathering *gathering) {
    struct mm_meeting *meeting = gathering->meeting;
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        struct connection *guest = &gathering->connection[i];
        if (guest->socket >= 0 && guest->come) {
            mm_wire_send(guest->socket, &gathering->verdict, sizeof gathering->verdict, mm_answers_deadline(meeting));
        }
        if (guest->socket >= 0 && guest->come && gathering->verdict.status == MMOE_OK) {
            meeting->guest[guest->hello.front.rank] = guest->socket;
        } else if (guest->socket >= 0) {
            close(guest->socket);
        }
    }
}

/* The place is free again before anybody hears the verdict, so that a guest that goes on to its next group finds the
 * next meeting there and not this one. */
mmoe_status mm_host_gather(struct mm_meeting *meeting, int listener) {
    void *memory;
    mmoe_status status = mm_alloc_zero(&memory, sizeof(struct gathering), "the record of a meeting");
    if (status != MMOE_OK) {
        mm_place_close(&meeting->place, listener);
        return status;
    }
    struct gathering *gathering = memory;
    *gathering = (struct gathering){.meeting = meeting,
                                    .own = mm_hello_of(meeting->group, mm_now() - meeting->started),
                                    .listener = listener,
                                    .awaited = meeting->group->world - 1};
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        gathering->connection[i].socket = -1;
    }
    gather(gathering);
    mm_place_close(&meeting->place, listener);
    conclude(gathering);
    status = mm_word_status(&gathering->verdict);
    mm_free(&gathering);
    return status;
}
