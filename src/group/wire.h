/* Messages of fixed size, and descriptors, over a non-blocking Unix stream socket, each with a deadline (mm_now).
 *
 * Functions return 0 or an errno value: ECONNRESET when the other end is closed, ETIMEDOUT at the deadline. */
#ifndef MM_GROUP_WIRE_H
#define MM_GROUP_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#define MM_WIRE_DESCRIPTORS 3

int mm_wire_send(int socket, const void *data, size_t bytes, double deadline);
int mm_wire_receive(int socket, void *data, size_t bytes, double deadline);

/* The same with descriptors on the way: those of `descriptors` until the first that is -1, at most
 * MM_WIRE_DESCRIPTORS. The receiver owns what it gets; what the sender did not send is -1, on failure all are. */
int mm_wire_send_with(int socket, const void *data, size_t bytes, const int *descriptors, double deadline);
int mm_wire_receive_with(int socket, void *data, size_t bytes, int *descriptors, double deadline);

/* Whether the other end belongs to this process's user. */
bool mm_wire_same_user(int socket);

#endif
