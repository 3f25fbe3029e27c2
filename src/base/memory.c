/* Allocation with one alignment and one error sentence. */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

mmoe_status mm_alloc(void **out, size_t bytes, const char *what) {
    *out = NULL;
    if (bytes <= PTRDIFF_MAX - MM_ALIGN) {
        *out = aligned_alloc(MM_ALIGN, bytes == 0 ? MM_ALIGN : mm_align(bytes));
    }
    return *out != NULL ? MMOE_OK : mm_fail(MMOE_OUT_OF_MEMORY, "no memory for %s: %zu bytes", what, bytes);
}

mmoe_status mm_alloc_zero(void **out, size_t bytes, const char *what) {
    mmoe_status status = mm_alloc(out, bytes, what);
    if (status == MMOE_OK) {
        memset(*out, 0, bytes);
    }
    return status;
}

/* Through memcpy: the caller's variable may be a pointer of any type. */
void mm_free(void *pointer) {
    void *block;
    memcpy(&block, pointer, sizeof block);
    free(block);
    block = NULL;
    memcpy(pointer, &block, sizeof block);
}

mmoe_status mm_buffer_reserve(struct mm_buffer *buffer, size_t bytes, const char *what) {
    if (buffer->data != NULL && bytes <= buffer->bytes) {
        return MMOE_OK;
    }
    mm_buffer_free(buffer); /* before, not after: the peak stays at the larger of the two */
    mmoe_status status = mm_alloc(&buffer->data, bytes, what);
    if (status == MMOE_OK) {
        buffer->bytes = bytes;
    }
    return status;
}

void mm_buffer_free(struct mm_buffer *buffer) {
    mm_free(&buffer->data);
    buffer->bytes = 0;
}
