/* What a thread knows, learns and tells: happens-before as the PTX memory model has it, a clock a warp.
 *
 * A lane's knowledge is its warp's `base`, made when the warp last met at an aligned operation, and `extra`, learnt
 * since by this lane alone. An access is labelled with the lane's clock, which advances whenever the lane tells
 * somebody something, so that what comes after is not covered. */
#ifndef SIM_ORDER_H
#define SIM_ORDER_H

#include "sim/machine.h"

namespace sim {

uint32_t label(const thread &t);
bool knows(const thread &t, const epoch &e, view v);
/* Release: adds what the thread knows and has done to `to`. */
void tell(thread &t, clocks &to);
/* Release that orders nothing but what asynchronous series have done, and what is done before them. */
void tell_asyncs(const thread &t, clocks &to);
/* Acquire. */
void learn(thread &t, const clocks_ref &from);
/* An asynchronous series is known to be done up to `clock`. */
void learn_async(thread &t, uint16_t actor, uint32_t clock);
/* The thread has waited for asynchronous work that reads shared memory: what was fenced before is done. */
void learn_done(thread &t);
/* A proxy fence: what the thread knows and has done is visible to the async proxy. */
void fence_proxy(thread &t, view v);
/* All lanes of a warp have met: they know what each knew. */
void meet(warp &w, const void *where);
/* After meet: release and acquire by the whole warp. */
void tell(const warp &w, clocks &to);
void learn(warp &w, const clocks &from);
void learn_done(warp &w);

/* An access of a thread's own, or of asynchronous work that it starts. */
class thread_observer final : public observer {
  public:
    thread_observer(thread &t, uint8_t flags);                                         /* generic proxy */
    thread_observer(thread &t, uint16_t actor, uint32_t clock, uint8_t flags, view v); /* async proxy */
    bool knows(const epoch &e, view v) const override { return sim::knows(by, e, v); }
    bool same_device(const epoch &e) const override;

  private:
    thread &by;
};

} // namespace sim

#endif
