/* mbarriers, for the copies that land on them. */
#ifndef SIM_MBARRIER_H
#define SIM_MBARRIER_H

#include <string>

#include "sim/machine.h"

namespace sim {

/* The mbarrier at an address of a CTA's shared memory, fit for use by the thread; `from_outside`: by a copy or by
 * another CTA, which want mbarrier_init_fence. */
mbarrier &mbarrier_at(thread &t, cta &c, uint32_t bar, bool from_outside, const char *what);

/* A part of a copy has landed; `last`: its last. The answer is what is wrong, if anything. */
std::string mbarrier_land(mbarrier &b, uint32_t phase, uint32_t bytes, bool last);

} // namespace sim

#endif
