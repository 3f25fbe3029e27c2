/* Fibers: a stack each and a hand-written switch between them. */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include <cstddef>
#include <vector>

namespace sim {

struct fiber {
    void *stack_pointer = nullptr; /* while it does not run */
    char *stack = nullptr;         /* lowest address; nullptr for the thread that entered the simulator */
    size_t stack_bytes = 0;
    void *sanitizer_frames = nullptr;
};

/* Stacks of one size with a page below each that faults, mapped in slabs, used again. */
class stack_pool {
  public:
    explicit stack_pool(size_t bytes_of_each) : stack_bytes(bytes_of_each) {}
    ~stack_pool();
    stack_pool(const stack_pool &) = delete;
    stack_pool &operator=(const stack_pool &) = delete;

    /* Makes `f` start in entry(argument), which must never return, when it is first switched to. false: no memory. */
    bool start(fiber &f, void (*entry)(void *), void *argument);
    void release(fiber &f);

  private:
    bool grow();

    struct slab {
        char *memory;
        size_t bytes;
    };
    const size_t stack_bytes;
    std::vector<slab> slabs;
    std::vector<char *> unused;
    size_t started = 0;
};

/* Leaves `from`, which runs, and continues `to`. */
void fiber_switch(fiber &from, fiber &to);
/* The first thing that a fiber's entry does. */
void fiber_entered(fiber &self);

} // namespace sim

#endif
