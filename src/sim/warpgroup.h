/* A warpgroup's products: issued by its four warps together, done later, in order. */
#ifndef SIM_WARPGROUP_H
#define SIM_WARPGROUP_H

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sim/model.h"
#include "sim/product.h"

namespace sim {

/* The arrays d, one a thread, that products accumulate into. */
struct accumulators {
    unsigned columns = 0;
    std::array<float *, 128> d = {};
    std::vector<float> value; /* 64 x columns: in flight, or as last delivered */
    uint32_t in_flight = 0;   /* warps whose d is poisoned */
    uint32_t delivered = 0;   /* warps that have been given a value */
    std::array<uint32_t, 4> last_group = {}, fences_then = {};
};

class warpgroup {
  public:
    warpgroup(cta &c, unsigned index);

    /* By the last lane of one of its warps; the answer is what is wrong, if anything. */
    std::string issue(warp &w, const product &p, float *const (&d)[32], const void *where, fault *kind);
    bool done(uint32_t group) const { return pending.empty() || pending.front().group > group; }
    /* Gives the warp the accumulators that groups up to this one, now done, have filled. */
    std::string deliver(warp &w, uint32_t group);
    /* A product, issued at *where, waits for this warp. */
    bool lacks(const warp &w, const void **where) const;
    /* A warp that has issued the last product. */
    const warp *issuer() const { return last_issuer; }
    bool in_flight(const warp &w, unsigned lane, const float *d) const;

    /* Does the next product, if all four warps have issued it; and there may be more: true. */
    bool step();

    std::vector<thread *> waits; /* of each warp that waits, the lane that came last: it goes on first */
    uint16_t actor = 0;          /* of the reads by its products; its clock counts groups: */
    uint32_t first_clock = 0;
    bool listed = false; /* as work to be done */

  private:
    struct issued {
        product what;
        uint32_t group = 0, warps = 0;
        accumulators *into = nullptr;
        const void *where = nullptr;
    };

    std::string take(warp &w, const product &p, accumulators &a, float *const (&d)[32]);
    accumulators &find(const warp &w, unsigned columns, float *const (&d)[32]);

    cta &of;
    const unsigned index;
    std::deque<issued> pending;
    uint64_t done_products = 0;
    const warp *last_issuer = nullptr;
    std::vector<std::unique_ptr<accumulators>> arrays;
};

} // namespace sim

#endif
