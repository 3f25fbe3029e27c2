/* Proof of life between processes, by a record lock of a process on a memory file.
 *
 * The kernel drops it when the process ends, before anybody reaps it; a child that the process forks does not have it,
 * and no number of a process is involved, so PID namespaces don't matter. The process also loses it by closing any
 * descriptor of the file: its own stays open, and the peers' must be in other processes. */
#include "group/life.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

static struct flock whole_file(void) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

mmoe_status mm_life_begin(int *life) {
    *life = -1;
    int made = memfd_create("megamoe life", MFD_CLOEXEC);
    if (made < 0) {
        return mm_fail_system(errno, "can't make a memory file");
    }
    struct flock lock = whole_file();
    if (fcntl(made, F_SETLK, &lock) != 0) {
        mmoe_status status = mm_fail_system(errno, "can't lock a memory file");
        close(made);
        return status;
    }
    *life = made;
    return MMOE_OK;
}

/* Asked as the owner of an open file, to whom the lock of every process is somebody else's. */
bool mm_life_lasts(int life) {
    struct flock lock = whole_file();
    return fcntl(life, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Asked as a process, to whom its own lock is no obstacle. */
bool mm_life_is_own(int life) {
    struct flock lock = whole_file();
    return fcntl(life, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK && mm_life_lasts(life);
}
