/* How a seed bends the schedule: fair, or starving some warps, early or late copies, long or short turns. */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include "sim/random.h"

namespace sim {

struct warp;

struct schedule {
    unsigned stay = 256;        /* of 256: go on with the same warp while its lanes can run */
    unsigned leave = 64;        /* of 256: at an operation that need not wait, let another run */
    unsigned copies_first = 64; /* of 256: asynchronous work before threads */
    unsigned false_alarms = 16; /* of 256: mbarrier_test says false though it could wait */
    enum { NONE, ROLE, CTA, DEVICE, WARPS } starve = NONE;
    uint64_t starved = 0; /* which */
    bool shuffle_ctas = false;
    unsigned leader = 0; /* the lane that elect_one chooses */
};

schedule draw_schedule(random_source &random);
/* Runs only when nothing else can, and once in a while. */
bool is_starved(const schedule &s, const warp &w);

} // namespace sim

#endif
