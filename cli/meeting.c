/* Processes that tell rank 0 their numbers over a socket. */
#include "meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "random.h"

#define MEET_SECONDS 60.0

static bool fail(char *error, size_t bytes, const char *what, int rank) {
    snprintf(error, bytes, "rank %d can't be reached %s", rank, what);
    return false;
}

/* An abstract address that the processes of one start share, and that no other start of this user has. */
static socklen_t address_of(struct sockaddr_un *address) {
    static const char *const variables[] = {"MMOE_RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"};
    uint64_t hash = random_mix((uint64_t)getuid());
    for (size_t v = 0; v < sizeof variables / sizeof variables[0]; v++)
        for (const char *at = getenv(variables[v]); at && *at; at++)
            hash = random_mix(hash ^ (uint64_t)(unsigned char)*at) + v;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "megamoe-command-%016llx",
                          (unsigned long long)hash);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool same_user(int descriptor) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    return !getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) && peer.uid == getuid();
}

static bool send_all(int descriptor, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t sent = send(descriptor, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int descriptor, void *data, size_t bytes) {
    char *at = data;
    while (bytes > 0) {
        ssize_t got = recv(descriptor, at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

/* Rank 0 lets every other rank in; each says its number first. */
static bool accept_ranks(struct meeting *meeting, int listener, char *error, size_t error_bytes) {
    double deadline = clock_now() + MEET_SECONDS;
    for (int met = 1; met < meeting->world;) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        double left = deadline - clock_now();
        if (left <= 0 || (poll(&wait, 1, (int)(left * 1000) + 1) <= 0 && errno != EINTR)) {
            int missing = 1;
            while (missing < meeting->world - 1 && meeting->socket[missing] >= 0)
                missing++;
            return fail(error, error_bytes, "at the start: it did not come within 60 s", missing);
        }
        int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        int32_t rank = 0;
        if (descriptor < 0)
            continue;
        if (!same_user(descriptor) || !receive_all(descriptor, &rank, sizeof rank) || rank < 1 ||
            rank >= meeting->world || meeting->socket[rank] >= 0) {
            close(descriptor);
            continue;
        }
        meeting->socket[rank] = descriptor;
        met++;
    }
    return true;
}

static bool listen_as_first(struct meeting *meeting, char *error, size_t error_bytes) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good =
        listener >= 0 && !bind(listener, (struct sockaddr *)&address, length) && !listen(listener, MMOE_MAX_WORLD);
    if (!good)
        snprintf(error, error_bytes, "the socket where the ranks meet can't be made: %s", strerror(errno));
    else
        good = accept_ranks(meeting, listener, error, error_bytes);
    if (listener >= 0)
        close(listener);
    return good;
}

/* The others try until rank 0 listens. */
static bool join(struct meeting *meeting, char *error, size_t error_bytes) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address);
    int32_t rank = meeting->rank;
    for (double deadline = clock_now() + MEET_SECONDS; clock_now() < deadline; usleep(20000)) {
        int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (descriptor < 0)
            break;
        if (!connect(descriptor, (struct sockaddr *)&address, length) && same_user(descriptor) &&
            send_all(descriptor, &rank, sizeof rank)) {
            meeting->socket[0] = descriptor;
            return true;
        }
        close(descriptor);
    }
    return fail(error, error_bytes, "at the start: it did not come within 60 s", 0);
}

bool meeting_open(struct meeting *meeting, int rank, int world, char *error, size_t error_bytes) {
    meeting->rank = rank;
    meeting->world = world;
    for (int r = 0; r < MMOE_MAX_WORLD; r++)
        meeting->socket[r] = -1;
    if (world == 1)
        return true;
    return rank == 0 ? listen_as_first(meeting, error, error_bytes) : join(meeting, error, error_bytes);
}

void meeting_close(struct meeting *meeting) {
    for (int r = 0; r < MMOE_MAX_WORLD; r++)
        if (meeting->socket[r] >= 0)
            close(meeting->socket[r]);
}

/* Rank 0: each part as it comes, so that a rank that has ended is noticed before one that says nothing. */
static bool receive_parts(const struct meeting *meeting, char *parts, size_t bytes, char *error, size_t error_bytes) {
    struct pollfd wait[MMOE_MAX_WORLD];
    for (int r = 0; r < meeting->world; r++)
        wait[r] = (struct pollfd){.fd = meeting->socket[r], .events = POLLIN};
    for (int missing = meeting->world - 1; missing > 0;) {
        if (poll(wait, (nfds_t)meeting->world, -1) < 0 && errno != EINTR)
            return fail(error, error_bytes, "any more", 0);
        for (int r = 1; r < meeting->world; r++) {
            if (wait[r].fd < 0 || !wait[r].revents)
                continue;
            if (!receive_all(wait[r].fd, parts + (size_t)r * bytes, bytes))
                return fail(error, error_bytes, "any more", r);
            wait[r].fd = -1;
            missing--;
        }
    }
    return true;
}

bool meeting_gather(struct meeting *meeting, const void *mine, size_t bytes, void *all, char *error,
                    size_t error_bytes) {
    memcpy((char *)all + (size_t)meeting->rank * bytes, mine, bytes);
    if (meeting->rank > 0) {
        if (send_all(meeting->socket[0], mine, bytes) &&
            receive_all(meeting->socket[0], all, (size_t)meeting->world * bytes))
            return true;
        return fail(error, error_bytes, "any more", 0);
    }
    if (!receive_parts(meeting, all, bytes, error, error_bytes))
        return false;
    for (int r = 1; r < meeting->world; r++)
        if (!send_all(meeting->socket[r], all, (size_t)meeting->world * bytes))
            return fail(error, error_bytes, "any more", r);
    return true;
}
