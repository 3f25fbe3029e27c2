/* Fresh memory is often zero by luck, which hides reads of what was never written. The linker sends every call of
 * aligned_alloc here (--wrap), where the library's fresh memory gets a poison instead. */
#include "rig/allocation.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int poison_byte = 0xff;

void rig_poison_allocations(int byte) {
    poison_byte = byte;
}

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    void *memory = __real_aligned_alloc(alignment, bytes);
    if (memory)
        memset(memory, poison_byte, bytes);
    return memory;
}
