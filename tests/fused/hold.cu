/* Holds multiprocessors; see hold.h. */
#include "hold.h"
#include "kernels/isa.cuh"

MM_KERNEL(hold, hold_params, HOLD_THREADS) {
    if (thread_index() == 0) {
        for (uint32_t i = 0; i < p.peers; i++)
            add_release_system(p.tell[i], 1);
        while (load_acquire_system(p.until) < p.count)
            sleep_ns(200);
    }
    cta_sync();
}
