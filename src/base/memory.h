/* Allocation and small helpers on sizes. Every block is aligned to 128 bytes, a cache line pair. */
#ifndef MM_BASE_MEMORY_H
#define MM_BASE_MEMORY_H

#include <stddef.h>

#include "megamoe.h"

#define MM_ALIGN 128

/* Uninitialised memory; `bytes` 0 gives a valid pointer. On failure *out is NULL, status MMOE_OUT_OF_MEMORY,
 * and the text names `what` and the size. */
mmoe_status mm_alloc(void **out, size_t bytes, const char *what);

/* The same, zeroed. */
mmoe_status mm_alloc_zero(void **out, size_t bytes, const char *what);

/* Frees and sets the pointer to NULL. `pointer` is the address of a pointer variable of any type. */
void mm_free(void *pointer);

/* A buffer that grows and never shrinks; contents are not kept. A zeroed struct is an empty buffer. */
struct mm_buffer {
    void *data;
    size_t bytes;
};

/* Makes room for `bytes`, exactly; does nothing when there is enough. On failure the buffer is empty. */
mmoe_status mm_buffer_reserve(struct mm_buffer *buffer, size_t bytes, const char *what);
void mm_buffer_free(struct mm_buffer *buffer);

/* `bytes` rounded up to a multiple of MM_ALIGN. */
static inline size_t mm_align(size_t bytes) {
    return (bytes + MM_ALIGN - 1) / MM_ALIGN * MM_ALIGN;
}

#endif
