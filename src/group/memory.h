/* How the segments of a group come to be mapped in one address space, and what ranks show one another for that.
 *
 * Three kinds: one allocation for ranks that are threads, a shared-memory file a rank for ranks that are processes,
 * and the caller's pointers. */
#ifndef MM_GROUP_MEMORY_H
#define MM_GROUP_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* segments[r] of `world` ranks in one allocation, to be given up by `holders` handles: one for each rank that is a
 * thread. */
mmoe_status mm_memory_make_shared(size_t bytes, int world, int holders, struct mm_memory **memory,
                                  unsigned char **segments);

/* For rank `rank` of ranks that are processes: makes its own segment. */
mmoe_status mm_memory_make_own(const struct mm_segment_maker *maker, size_t bytes, int rank, int world,
                               struct mm_memory **memory);

/* Memory on a device that a rank offers its peers: see struct mm_sharing of the backends. */
struct mm_offer {
    int descriptor;  /* -1: there is none */
    char device[32]; /* which one, by a name that all processes of the host have for it */
    uint64_t bytes;
};

#define MM_NO_OFFER ((struct mm_offer){.descriptor = -1})

/* What a peer needs to map this rank's segment, to see whether this rank lives, and to map its device memory. */
struct mm_passport {
    int segment, life;
    struct mm_offer offer;
};

#define MM_NO_PASSPORT ((struct mm_passport){-1, -1, MM_NO_OFFER})

/* Without an offer; both descriptors stay owned by `memory`. */
struct mm_passport mm_memory_passport(const struct mm_memory *memory);

/* Maps a peer's segment. Takes the descriptors of segment and life, also on failure. */
mmoe_status mm_memory_map_peer(struct mm_memory *memory, int peer, int segment, int life);

/* All segments, once they are mapped. Closes the own segment's descriptor, which no peer needs any more. */
void mm_memory_complete(struct mm_memory *memory, unsigned char **segments);

/* Gives up one hold; the last one unmaps. NULL is accepted. */
void mm_memory_release(struct mm_memory *memory);

/* Whether rank `rank` still lives. Ranks that are threads, and adopted ones, always do. A process that has died is
 * seen at once, also as a zombie and across PID namespaces, since the kernel drops its file lock. */
bool mm_memory_alive(const struct mm_memory *memory, int rank);

#endif
