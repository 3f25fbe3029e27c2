/* Where the processes of a group meet: a Unix socket with a name that all of them can derive. */
#ifndef MM_GROUP_RENDEZVOUS_H
#define MM_GROUP_RENDEZVOUS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "megamoe.h"

struct mm_place {
    struct sockaddr_un address;
    socklen_t bytes;
    bool is_file; /* otherwise an abstract name, which needs no cleaning */
};

/* `rendezvous` is "path:..." or "name:..."; `name` is the group's and matters to the second kind alone, since at a path
 * ranks that don't agree on it shall meet and be told. */
mmoe_status mm_place_of(const char *rendezvous, const char *name, struct mm_place *place);

/* Listens there, also in place of a dead run's file. When somebody else listens there *listener is -1. */
mmoe_status mm_place_listen(const struct mm_place *place, int *listener);

/* Ends listening and removes the file. */
void mm_place_close(const struct mm_place *place, int listener);

/* A connected socket, or -1 with *error. */
int mm_place_connect(const struct mm_place *place, int *error);

/* Removes a file at which nobody listens. */
void mm_place_clear(const struct mm_place *place);

#endif
