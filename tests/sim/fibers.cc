/* Fibers: what is kept across a switch, many of them, stacks used again, and the time of a switch. */
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "sim/fiber.h"

namespace {

sim::fiber main_fiber;

struct worker {
    sim::fiber self;
    uint64_t rounds = 0, sum = 0;
    double product = 1;
    bool done = false;
};

/* Keeps more values alive across switches than there are registers. */
void work(void *argument) {
    worker &w = *(worker *)argument;
    sim::fiber_entered(w.self);
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
    double x = 1.5, y = 0.25;
    for (uint64_t i = 0; i < w.rounds; i++) {
        a += b, b += c, c += d, d += e, e += f, f += g, g += h, h += a;
        x = std::sqrt(x + (double)i), y += x;
        sim::fiber_switch(w.self, main_fiber);
    }
    w.sum = a + b + c + d + e + f + g + h;
    w.product = x * y;
    w.done = true;
    sim::fiber_switch(w.self, main_fiber);
}

void alone(uint64_t rounds, uint64_t *sum, double *product) {
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
    double x = 1.5, y = 0.25;
    for (uint64_t i = 0; i < rounds; i++) {
        a += b, b += c, c += d, d += e, e += f, f += g, g += h, h += a;
        x = std::sqrt(x + (double)i), y += x;
    }
    *sum = a + b + c + d + e + f + g + h;
    *product = x * y;
}

void values_are_kept(sim::stack_pool &pool) {
    std::vector<worker> workers(1000);
    for (size_t i = 0; i < workers.size(); i++) {
        workers[i].rounds = i % 37;
        CHECK(pool.start(workers[i].self, work, &workers[i]));
    }
    for (int round = 0; round < 38; round++)
        for (worker &w : workers)
            if (!w.done)
                sim::fiber_switch(main_fiber, w.self);
    for (worker &w : workers) {
        uint64_t sum;
        double product;
        alone(w.rounds, &sum, &product);
        CHECK(w.done && w.sum == sum && w.product == product);
        pool.release(w.self);
    }
}

void stacks_are_used_again(sim::stack_pool &pool) {
    worker first, second;
    CHECK(pool.start(first.self, work, &first));
    char *const stack = first.self.stack;
    pool.release(first.self);
    CHECK(pool.start(second.self, work, &second));
    CHECK(second.self.stack == stack);
    sim::fiber_switch(main_fiber, second.self);
    CHECK(second.done);
    pool.release(second.self);
}

void say_how_fast(sim::stack_pool &pool) {
    const uint64_t rounds = 2000000;
    worker w;
    w.rounds = rounds;
    CHECK(pool.start(w.self, work, &w));
    const auto start = std::chrono::steady_clock::now();
    while (!w.done)
        sim::fiber_switch(main_fiber, w.self);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%.1f million switches a second\n", 2 * (double)rounds / seconds * 1e-6);
    pool.release(w.self);
}

} // namespace

int main() {
    sim::stack_pool pool(64 * 1024);
    values_are_kept(pool);
    stacks_are_used_again(pool);
    say_how_fast(pool);
    return checks_result();
}
