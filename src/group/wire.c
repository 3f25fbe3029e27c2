/* Messages and descriptors over Unix sockets. */
#include "group/wire.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define DESCRIPTOR_BYTES (MM_WIRE_DESCRIPTORS * sizeof(int))

/* Room for one control message, aligned as one must be. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(DESCRIPTOR_BYTES)];
};

/* As many as fit into that room, which is rounded up. */
#define MOST_DESCRIPTORS ((sizeof(union control) - CMSG_LEN(0)) / sizeof(int))

static int await(int socket, short events, double deadline) {
    for (;;) {
        const double left = deadline - mm_now();
        if (left <= 0) {
            return ETIMEDOUT;
        }
        struct pollfd polled = {.fd = socket, .events = events};
        if (poll(&polled, 1, (int)fmin(ceil(left * 1e3), 1000)) > 0) {
            return 0;
        }
    }
}

/* What a failed send or recvmsg means: 0, to try again, once the socket is ready. */
static int settle(int socket, short events, int error, double deadline) {
    if (error == EAGAIN || error == EWOULDBLOCK) {
        return await(socket, events, deadline);
    }
    return error == EINTR ? 0 : error == EPIPE ? ECONNRESET : error;
}

static size_t count_descriptors(const int *descriptors) {
    size_t count = 0;
    while (descriptors != NULL && count < MM_WIRE_DESCRIPTORS && descriptors[count] >= 0) {
        count++;
    }
    return count;
}

static void put_descriptors(struct msghdr *message, union control *control, const int *descriptors) {
    const size_t bytes = count_descriptors(descriptors) * sizeof(int);
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(bytes);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(header), descriptors, bytes);
}

int mm_wire_send_with(int socket, const void *data, size_t bytes, const int *descriptors, double deadline) {
    size_t sent = 0;
    while (sent < bytes) {
        struct iovec part = {.iov_base = (char *)data + sent, .iov_len = bytes - sent};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        union control control = {.bytes = {0}};
        if (count_descriptors(descriptors) > 0 && sent == 0) {
            put_descriptors(&message, &control, descriptors);
        }
        ssize_t count = sendmsg(socket, &message, MSG_NOSIGNAL);
        int error = count < 0 ? settle(socket, POLLOUT, errno, deadline) : 0;
        if (error != 0) {
            return error;
        }
        sent += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

static void close_descriptors(const int *descriptors, size_t count) {
    for (size_t i = 0; i < count; i++) {
        close(descriptors[i]);
    }
}

/* Takes the descriptors of one received message; EMFILE when this process could not hold all of them. */
static int take_descriptors(struct msghdr *message, int *descriptors) {
    int error = message->msg_flags & MSG_CTRUNC ? EMFILE : 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        int got[MOST_DESCRIPTORS];
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(got, CMSG_DATA(header), count * sizeof(int));
        if (count > MM_WIRE_DESCRIPTORS || error != 0 || descriptors[0] >= 0) {
            close_descriptors(got, count);
            error = error != 0 ? error : EBADMSG;
        } else {
            memcpy(descriptors, got, count * sizeof(int));
        }
    }
    return error;
}

static void no_descriptors(int *descriptors) {
    for (int i = 0; i < MM_WIRE_DESCRIPTORS; i++) {
        descriptors[i] = -1;
    }
}

/* One recvmsg; *received grows by what came. */
static int receive_part(int socket, struct iovec part, size_t *received, int *descriptors, double deadline) {
    union control control = {.bytes = {0}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (count < 0) {
        return settle(socket, POLLIN, errno, deadline);
    }
    *received += (size_t)count;
    int error = take_descriptors(&message, descriptors);
    return error == 0 && count == 0 ? ECONNRESET : error;
}

int mm_wire_receive_with(int socket, void *data, size_t bytes, int *descriptors, double deadline) {
    no_descriptors(descriptors);
    size_t received = 0;
    int error = 0;
    while (received < bytes && error == 0) {
        struct iovec part = {.iov_base = (char *)data + received, .iov_len = bytes - received};
        error = receive_part(socket, part, &received, descriptors, deadline);
    }
    if (error != 0) {
        close_descriptors(descriptors, count_descriptors(descriptors));
        no_descriptors(descriptors);
    }
    return error;
}

int mm_wire_send(int socket, const void *data, size_t bytes, double deadline) {
    return mm_wire_send_with(socket, data, bytes, NULL, deadline);
}

/* Descriptors that nobody asked for are closed. */
int mm_wire_receive(int socket, void *data, size_t bytes, double deadline) {
    int unwanted[MM_WIRE_DESCRIPTORS];
    int error = mm_wire_receive_with(socket, data, bytes, unwanted, deadline);
    close_descriptors(unwanted, count_descriptors(unwanted));
    return error;
}

bool mm_wire_same_user(int socket) {
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}
