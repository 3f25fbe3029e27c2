/* Stacks of fibers, and what the address sanitizer wants to know about a switch. */
#include "sim/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" {
void sim_switch_stack(void **from, void *to);
void sim_first_frame(void);
}

namespace sim {

namespace {

const size_t SLAB_STACKS = 64;

/* What sim_switch_stack pops: registers, then the address to go to; with what aligns the stack. */
#if defined(__x86_64__)
enum { FRAME_WORDS = 9, ENTRY_WORD = 2, ARGUMENT_WORD = 3, RETURN_WORD = 6 };
#elif defined(__aarch64__)
enum { FRAME_WORDS = 20, ENTRY_WORD = 0, ARGUMENT_WORD = 1, RETURN_WORD = 11 };
#else
#error "the switch between fibers is written for x86-64 and aarch64"
#endif

} // namespace

/* Frames that were left for ever are no longer marked on memory that is used anew. */
static void forget_frames(const char *memory, size_t bytes) {
    (void)memory;
    (void)bytes;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(memory, bytes);
#endif
}

/* Newer kernels mark a page as a guard without making a mapping of its own of it, which is much faster. */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static bool make_guard(void *page, size_t bytes) {
    return madvise(page, bytes, MADV_GUARD_INSTALL) == 0 || mprotect(page, bytes, PROT_NONE) == 0;
}

stack_pool::~stack_pool() {
    for (const slab &s : slabs) {
        forget_frames(s.memory, s.bytes);
        munmap(s.memory, s.bytes);
    }
}

bool stack_pool::grow() {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pitch = stack_bytes + page;
    const size_t bytes = pitch * SLAB_STACKS;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    slabs.push_back({(char *)memory, bytes});
    for (size_t i = SLAB_STACKS; i-- > 0;) {
        char *low = (char *)memory + i * pitch;
        if (!make_guard(low, page))
            return false;
        unused.push_back(low + page);
    }
    return true;
}

bool stack_pool::start(fiber &f, void (*entry)(void *), void *argument) {
    if (unused.empty() && !grow())
        return false;
    f.stack = unused.back();
    f.stack_bytes = stack_bytes;
    unused.pop_back();
    /* Stacks begin at different places within a page: else they would all share a few sets of the first-level cache. */
    const size_t stagger = started++ % 32 * 128;
    void **top = (void **)(f.stack + stack_bytes - stagger) - FRAME_WORDS;
    memset(top, 0, FRAME_WORDS * sizeof *top);
    top[ENTRY_WORD] = (void *)entry;
    top[ARGUMENT_WORD] = argument;
    top[RETURN_WORD] = (void *)sim_first_frame;
    f.stack_pointer = top;
    return true;
}

void stack_pool::release(fiber &f) {
    forget_frames(f.stack, f.stack_bytes);
    unused.push_back(f.stack);
    f.stack = nullptr;
}

void fiber_switch(fiber &from, fiber &to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from.sanitizer_frames, to.stack, to.stack_bytes);
#endif
    sim_switch_stack(&from.stack_pointer, to.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.sanitizer_frames, nullptr, nullptr);
#endif
}

void fiber_entered(fiber &self) {
    (void)self;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(self.sanitizer_frames, nullptr, nullptr);
#endif
}

} // namespace sim
