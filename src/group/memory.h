/* How the segments of a group come to be mapped in one address space.
 *
 * Three kinds: one allocation for ranks that are threads, a shared-memory file a rank for ranks that are processes,
 * and the caller's pointers. A backend whose segments live in device memory brings its own `mm_segment_maker`. */
#ifndef MM_GROUP_MEMORY_H
#define MM_GROUP_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "megamoe.h"

/* Makes one rank's zeroed segment and turns it into a file descriptor that another process can map. */
struct mm_segment_maker {
    mmoe_status (*make)(size_t bytes, int *descriptor, void **segment); /* made and mapped here */
    mmoe_status (*map)(int descriptor, size_t bytes, void **segment);   /* a peer's, mapped here */
    void (*unmap)(void *segment, size_t bytes);
};

/* Shared-memory files of the host: memfd, so that nothing is left in any folder whatever dies when. */
extern const struct mm_segment_maker mm_host_segments;

/* What keeps the segments of one handle mapped; shared and counted when ranks are threads. */
struct mm_memory;

/* Whether rank `rank` still lives. Ranks that are threads, and adopted ones, always do. A process that has died is
 * seen at once, also as a zombie and across PID namespaces, since the kernel drops its file lock. */
bool mm_memory_alive(const struct mm_memory *memory, int rank);

#endif
