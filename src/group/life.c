/* Proof of life between processes, by a lock on an open file description of a memory file.
 *
 * The lock belongs to the description `held`, which only this process has; peers get another description of the same
 * file, `shown`, so that whatever they do with it can't keep the lock. The kernel closes `held` when the process ends,
 * before anybody reaps it, and no number of a process is involved, so PID namespaces don't matter. */
#include "group/life.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

static struct flock whole_file(void) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

static int open_again(int descriptor) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return open(path, O_RDWR | O_CLOEXEC);
}

mmoe_status mm_life_begin(struct mm_life *life) {
    *life = (struct mm_life){-1, -1};
    int shown = memfd_create("megamoe life", MFD_CLOEXEC);
    if (shown < 0) {
        return mm_fail_system(errno, "can't make a memory file");
    }
    int held = open_again(shown);
    struct flock lock = whole_file();
    if (held < 0 || fcntl(held, F_OFD_SETLK, &lock) != 0) {
        mmoe_status status = mm_fail_system(errno, held < 0 ? "can't open a memory file through /proc/self/fd"
                                                            : "can't lock a memory file");
        if (held >= 0) {
            close(held);
        }
        close(shown);
        return status;
    }
    *life = (struct mm_life){.shown = shown, .held = held};
    return MMOE_OK;
}

bool mm_life_lasts(int shown) {
    struct flock lock = whole_file();
    return fcntl(shown, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}
