/* What keeps the segments of a group mapped, and who of its ranks lives. */
#include "group/memory.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "group/life.h"

struct mm_memory {
    atomic_int holds;
    int rank, world;
    size_t bytes;

    void *shared; /* the one allocation; NULL for ranks that are processes */

    /* ranks that are processes */
    const struct mm_segment_maker *maker;
    void *segment[MMOE_MAX_WORLD];
    int own_descriptor;       /* of the own segment; -1 once every peer has it */
    int life;                 /* this rank's */
    int peer[MMOE_MAX_WORLD]; /* the peers' lives */
};

static void close_if_open(int descriptor) {
    if (descriptor >= 0) {
        close(descriptor);
    }
}

static mmoe_status make_memory(size_t bytes, int rank, int world, struct mm_memory **out) {
    void *block;
    mmoe_status status = mm_alloc_zero(&block, sizeof **out, "the record of a group's memory");
    *out = block;
    if (status == MMOE_OK) {
        **out = (struct mm_memory){
            .holds = 1, .rank = rank, .world = world, .bytes = bytes, .own_descriptor = -1, .life = -1};
        for (int r = 0; r < MMOE_MAX_WORLD; r++) {
            (*out)->peer[r] = -1;
        }
    }
    return status;
}

mmoe_status mm_memory_make_shared(size_t bytes, int world, int holders, struct mm_memory **out,
                                  unsigned char **segments) {
    const size_t total = bytes * (size_t)world;
    mmoe_status status = mm_host_segments.room(total);
    if (status == MMOE_OK) {
        status = make_memory(bytes, 0, world, out);
    }
    if (status != MMOE_OK) {
        return status;
    }
    struct mm_memory *memory = *out;
    status = mm_alloc_zero(&memory->shared, total, "the segments of all ranks");
    if (status != MMOE_OK) {
        mm_memory_release(memory);
        *out = NULL;
        return status;
    }
    atomic_store(&memory->holds, holders);
    for (int r = 0; r < world; r++) {
        segments[r] = (unsigned char *)memory->shared + (size_t)r * bytes;
    }
    return MMOE_OK;
}

mmoe_status mm_memory_make_own(const struct mm_segment_maker *maker, size_t bytes, int rank, int world,
                               struct mm_memory **out) {
    mmoe_status status = make_memory(bytes, rank, world, out);
    if (status != MMOE_OK) {
        return status;
    }
    struct mm_memory *memory = *out;
    memory->maker = maker;
    status = mm_life_begin(&memory->life);
    if (status == MMOE_OK) {
        status = maker->make(bytes, &memory->own_descriptor, &memory->segment[rank]);
    }
    if (status != MMOE_OK) {
        mm_memory_release(memory);
        *out = NULL;
    }
    return status;
}

struct mm_passport mm_memory_passport(const struct mm_memory *memory) {
    return (struct mm_passport){.segment = memory->own_descriptor, .life = memory->life, .offer = MM_NO_OFFER};
}

mmoe_status mm_memory_map_peer(struct mm_memory *memory, int peer, int segment, int life) {
    mmoe_status status = memory->maker->map(segment, memory->bytes, &memory->segment[peer]);
    close(segment);
    memory->peer[peer] = life;
    if (status == MMOE_OK && mm_life_is_own(life)) {
        status =
            mm_fail(MMOE_INVALID_ARGUMENT, "rank %d is in the same process, expected each rank to be a process", peer);
    }
    return status;
}

void mm_memory_complete(struct mm_memory *memory, unsigned char **segments) {
    for (int r = 0; r < memory->world; r++) {
        segments[r] = memory->segment[r];
    }
    close_if_open(memory->own_descriptor);
    memory->own_descriptor = -1;
}

static void free_memory(struct mm_memory *memory) {
    for (int r = 0; r < memory->world; r++) {
        if (memory->segment[r] != NULL) {
            memory->maker->unmap(memory->segment[r], memory->bytes);
        }
        close_if_open(memory->peer[r]);
    }
    close_if_open(memory->own_descriptor);
    close_if_open(memory->life);
    mm_free(&memory->shared);
    mm_free(&memory);
}

void mm_memory_release(struct mm_memory *memory) {
    if (memory != NULL && atomic_fetch_sub(&memory->holds, 1) == 1) {
        free_memory(memory);
    }
}

bool mm_memory_alive(const struct mm_memory *memory, int rank) {
    return memory == NULL || memory->peer[rank] < 0 || mm_life_lasts(memory->peer[rank]);
}
