/* Segments in shared memory of the host. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "group/memory.h"

static mmoe_status map(int descriptor, size_t bytes, void **segment) {
    struct stat file;
    if (fstat(descriptor, &file) != 0) {
        return mm_fail_system(errno, "can't look at a segment");
    }
    if ((size_t)file.st_size != bytes) {
        return mm_fail(MMOE_MISMATCH, "the segment has %lld bytes, expected %zu", (long long)file.st_size, bytes);
    }
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) {
        return mm_fail_system(errno, "can't map a segment of %zu bytes", bytes);
    }
    *segment = address;
    return MMOE_OK;
}

/* All pages now: a page that is missing later would be a SIGBUS in the middle of a call. The size is sealed, so that
 * no peer can take pages away. */
static mmoe_status fill(int descriptor, size_t bytes) {
    int error;
    do {
        error = fallocate(descriptor, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error == ENOSPC || error == ENOMEM) {
        return mm_fail(MMOE_OUT_OF_MEMORY, "no memory for a segment of %zu bytes", bytes);
    }
    if (error == 0 && fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        error = errno;
    }
    return error == 0 ? MMOE_OK : mm_fail_system(error, "can't make a segment of %zu bytes", bytes);
}

static mmoe_status make(size_t bytes, int *descriptor, void **segment) {
    int file = memfd_create("megamoe segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) {
        return mm_fail_system(errno, "can't make a memory file");
    }
    mmoe_status status = fill(file, bytes);
    if (status == MMOE_OK) {
        status = map(file, bytes, segment);
    }
    if (status != MMOE_OK) {
        close(file);
        return status;
    }
    *descriptor = file;
    return MMOE_OK;
}

static void unmap(void *segment, size_t bytes) {
    munmap(segment, bytes);
}

/* Linux hands out more than it has and kills a process when pages run out, so a request that can't fit is refused
 * before the first page is taken. Where /proc doesn't tell, nothing is known against it. */
static mmoe_status room(size_t bytes) {
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) {
        return MMOE_OK;
    }
    char line[128];
    unsigned long long available_kb;
    mmoe_status status = MMOE_OK;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &available_kb) == 1 && bytes / 1024 > available_kb) {
            status = mm_fail(MMOE_OUT_OF_MEMORY, "the segments of all ranks need %zu bytes and %llu are available",
                             bytes, available_kb * 1024);
        }
    }
    fclose(file);
    return status;
}

const struct mm_segment_maker mm_host_segments = {.make = make, .map = map, .unmap = unmap, .room = room};
