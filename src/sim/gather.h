/* Aligned operations: all lanes of a warp come to one call of one, and the last of them acts for all. */
#ifndef SIM_GATHER_H
#define SIM_GATHER_H

#include "sim/order.h"

namespace sim {

/* True in the lane that comes last, when the warp has met and the others still wait; false in the others, after
 * `part` or whatever else made them ready. `signature` must be the same in all lanes. */
bool gather(thread &t, aligned what, uint64_t signature);
/* The same, and the lanes learn nothing of each other. */
bool gather_unordered(thread &t, aligned what, uint64_t signature);
/* By the last lane: the others go on. */
void part(thread &t);
/* By the last lane: the whole warp waits until somebody makes it ready. */
void wait_together(thread &t, wait_for what);

/* The thread does something that makes what it polled before count anew. */
inline void not_polling(thread &t) {
    t.polls.count = 0;
}

} // namespace sim

#endif
