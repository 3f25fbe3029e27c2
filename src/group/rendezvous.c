/* Socket names and files of a rendezvous. */
#include "group/rendezvous.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define PATH_PREFIX "path:"
#define NAME_PREFIX "name:"
#define BACKLOG 128

static mmoe_status check_folder(const char *path) {
    char copy[sizeof((struct sockaddr_un *)NULL)->sun_path];
    snprintf(copy, sizeof copy, "%s", path);
    const char *folder = dirname(copy);
    struct stat status;
    if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode)) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "path is \"%s\", expected a name in an existing folder (\"%s\" is none)",
                       path, folder);
    }
    return MMOE_OK;
}

static mmoe_status file_place(const char *path, struct mm_place *place) {
    const size_t length = strlen(path), longest = sizeof place->address.sun_path - 1;
    if (length == 0 || length > longest) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "path is \"%.120s\", expected 1 .. %zu bytes, as socket names have", path,
                       longest);
    }
    memcpy(place->address.sun_path, path, length + 1);
    place->bytes = sizeof place->address;
    place->is_file = true;
    return check_folder(path);
}

/* FNV-1a; the end of the text is hashed too, so that texts don't run into one another. */
static uint64_t hash(uint64_t state, const char *text) {
    do {
        state = (state ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    } while (*text++ != '\0');
    return state;
}

/* A leading zero byte makes the name abstract. */
static mmoe_status abstract_place(const char *run, const char *name, struct mm_place *place) {
    const uint64_t key = hash(hash(UINT64_C(0xcbf29ce484222325), run), name);
    char *text = place->address.sun_path + 1;
    int length =
        snprintf(text, sizeof place->address.sun_path - 1, "megamoe-%lu-%016" PRIx64, (unsigned long)geteuid(), key);
    place->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return MMOE_OK;
}

mmoe_status mm_place_of(const char *rendezvous, const char *name, struct mm_place *place) {
    *place = (struct mm_place){.address.sun_family = AF_UNIX};
    if (strncmp(rendezvous, PATH_PREFIX, strlen(PATH_PREFIX)) == 0) {
        return file_place(rendezvous + strlen(PATH_PREFIX), place);
    }
    if (strncmp(rendezvous, NAME_PREFIX, strlen(NAME_PREFIX)) == 0) {
        return abstract_place(rendezvous + strlen(NAME_PREFIX), name, place);
    }
    return mm_fail(MMOE_INVALID_ARGUMENT, "rendezvous is \"%.80s\", expected path:... or name:...", rendezvous);
}

static int new_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int mm_place_connect(const struct mm_place *place, int *error) {
    int made = new_socket();
    if (made >= 0 && connect(made, (const struct sockaddr *)&place->address, place->bytes) == 0) {
        return made;
    }
    *error = errno;
    if (made >= 0) {
        close(made);
    }
    return -1;
}

/* Whether a socket file lies there at which nobody listens: a connection is refused. */
static bool is_stale(const struct mm_place *place) {
    struct stat file;
    if (!place->is_file || lstat(place->address.sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) {
        return false;
    }
    int error = 0;
    int probe = mm_place_connect(place, &error);
    if (probe >= 0) {
        close(probe);
    }
    return probe < 0 && error == ECONNREFUSED;
}

void mm_place_clear(const struct mm_place *place) {
    if (is_stale(place)) {
        unlink(place->address.sun_path);
    }
}

static int bind_and_listen(int listener, const struct mm_place *place) {
    if (bind(listener, (const struct sockaddr *)&place->address, place->bytes) != 0) {
        return errno;
    }
    return listen(listener, BACKLOG) == 0 ? 0 : errno;
}

static mmoe_status listen_failure(int error, const struct mm_place *place) {
    return place->is_file ? mm_fail_system(error, "can't make a socket at path \"%s\"", place->address.sun_path)
                          : mm_fail_system(error, "can't make the socket at which the ranks meet");
}

/* In use is a name at which another process listens; a file that is no socket is somebody's and stays. */
static mmoe_status occupied(const struct mm_place *place) {
    struct stat file;
    if (place->is_file && lstat(place->address.sun_path, &file) == 0 && !S_ISSOCK(file.st_mode)) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "path is \"%s\", expected a free name: a file that is no socket is there",
                       place->address.sun_path);
    }
    return MMOE_OK;
}

mmoe_status mm_place_listen(const struct mm_place *place, int *listener) {
    *listener = -1;
    mm_place_clear(place);
    int made = new_socket();
    int error = made < 0 ? errno : bind_and_listen(made, place);
    if (error == 0) {
        *listener = made;
        return MMOE_OK;
    }
    if (made >= 0) {
        close(made);
    }
    return error == EADDRINUSE ? occupied(place) : listen_failure(error, place);
}

void mm_place_close(const struct mm_place *place, int listener) {
    if (place->is_file) {
        unlink(place->address.sun_path);
    }
    close(listener);
}
