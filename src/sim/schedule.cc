/* How a seed bends the schedule. */
#include "sim/schedule.h"

#include "sim/machine.h"

namespace sim {

schedule draw_schedule(random_source &random) {
    schedule s;
    static const unsigned stays[] = {256, 256, 256, 250, 128, 0}, leaves[] = {0, 16, 64, 256};
    static const unsigned copies[] = {0, 2, 16, 64, 200, 256}, alarms[] = {0, 16, 64};
    s.stay = stays[random.below(6)];
    s.leave = leaves[random.below(4)];
    s.copies_first = copies[random.below(6)];
    s.false_alarms = alarms[random.below(3)];
    s.starve = (decltype(s.starve))random.below(5);
    s.starved = random.next();
    s.shuffle_ctas = random.one_in(2);
    s.leader = random.one_in(2) ? 0 : random.below(32);
    return s;
}

bool is_starved(const schedule &s, const warp &w) {
    const cta &c = *w.of;
    switch (s.starve) {
    case schedule::NONE:
        return false;
    case schedule::ROLE:
        return w.index == s.starved % c.warps.size();
    case schedule::CTA:
        return (s.starved >> c.index % 64 & 1) != 0;
    case schedule::DEVICE:
        return (s.starved >> c.of->device % 64 & 1) != 0;
    case schedule::WARPS:
        return (s.starved * (2 * c.index + 1) >> (w.index + c.of->device) % 64 & 1) != 0;
    }
    return false;
}

} // namespace sim
