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

    /* Whether the machine has room for the segments of all ranks, `bytes` in all, before any is made; may be NULL. */
    mmoe_status (*room)(size_t bytes);
};

/* Shared-memory files of the host: memfd, so that nothing is left in any folder whatever dies when. */
extern const struct mm_segment_maker mm_host_segments;

/* What keeps the segments of one handle mapped; shared and counted when ranks are threads. */
struct mm_memory;

/* For ranks that are threads: segments[r] of `world` ranks in one allocation, held once for each rank. */
mmoe_status mm_memory_make_shared(size_t bytes, int world, struct mm_memory **memory, unsigned char **segments);

/* For rank `rank` of ranks that are processes: makes its own segment. */
mmoe_status mm_memory_make_own(const struct mm_segment_maker *maker, size_t bytes, int rank, int world,
                               struct mm_memory **memory);

/* What a peer needs to map this rank's segment and to see whether this rank lives; both stay owned by `memory`. */
struct mm_passport {
    int segment, life;
};
struct mm_passport mm_memory_passport(const struct mm_memory *memory);

/* Maps a peer's segment. Takes the descriptors, also on failure. */
mmoe_status mm_memory_map_peer(struct mm_memory *memory, int peer, struct mm_passport passport);

/* All segments, once they are mapped. Closes the own segment's descriptor, which no peer needs any more. */
void mm_memory_complete(struct mm_memory *memory, unsigned char **segments);

/* Gives up one hold; the last one unmaps. NULL is accepted. */
void mm_memory_release(struct mm_memory *memory);

/* Whether rank `rank` still lives. Ranks that are threads, and adopted ones, always do. A process that has died is
 * seen at once, also as a zombie and across PID namespaces, since the kernel drops its file lock. */
bool mm_memory_alive(const struct mm_memory *memory, int rank);

#endif
