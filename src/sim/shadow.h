/* Shadow memory: for every byte of shared and global memory who wrote it last and who has read it since, in granules of
 * 16 bytes that split into pieces of 2 where accesses are smaller. An access is checked and noted here; whether an
 * earlier access is ordered before it is asked of the observer. */
#ifndef SIM_SHADOW_H
#define SIM_SHADOW_H

#include <array>
#include <cstddef>
#include <vector>

#include "sim/clocks.h"

namespace sim {

struct cell {
    epoch write, read;
};

/* Accesses under one clock; of a warp, by these lanes. */
struct readers {
    epoch first;
    uint32_t lanes;
};

enum class conflict { none, uninitialised, race, proxy, over_mbarrier };

/* Whose access it is, and what it knows. */
struct observer {
    epoch self;
    view writes_seen = KNOWN; /* what an ordinary write must be for this access: known, or fenced for the async proxy */
    virtual bool knows(const epoch &e, view v) const = 0;
    /* Two atomics do not race with each other where both scopes take in both devices. */
    virtual bool same_device(const epoch &e) const = 0;

  protected:
    ~observer() = default;
};

struct clash {
    conflict kind = conflict::none;
    size_t offset = 0; /* of the bytes, in the region */
    epoch earlier;
    bool earlier_writes = false;
};

class shadow;

/* The shadow of one CTA's shared memory or one allocation. */
class region_shadow {
  public:
    void resize(size_t bytes) { cells.assign((bytes + 15) / 16, cell()); }
    void release(shadow &s);

  private:
    friend class shadow;
    std::vector<cell> cells;
};

class shadow {
  public:
    /* Checks and notes an access; the first clash is returned, and then nothing more is noted. */
    clash read(region_shadow &r, size_t offset, size_t bytes, const observer &by);
    clash write(region_shadow &r, size_t offset, size_t bytes, const observer &by);
    /* Reads and writes: of initialised bytes. */
    clash modify(region_shadow &r, size_t offset, size_t bytes, const observer &by);
    /* What the last writer of these bytes left: its flags, 0 if nobody wrote. */
    uint8_t flags_at(const region_shadow &r, size_t offset) const;

    uint64_t accesses = 0;

  private:
    friend class region_shadow;
    enum class action { READ, WRITE, MODIFY };

    clash access(action what, region_shadow &r, size_t offset, size_t bytes, const observer &by);
    bool touch(action what, cell &c, const observer &by, clash &found);
    bool check_write(const cell &c, const observer &by, clash &found);
    bool check_reads(const cell &c, const observer &by, clash &found);
    void note_read(cell &c, const observer &by);
    void forget_reads(cell &c);
    cell *split(cell &c);
    void unite(cell &c);

    std::vector<std::array<cell, 8>> splits;        /* pieces of split granules */
    std::vector<std::vector<readers>> reader_lists; /* of cells with several unordered readers */
    std::vector<uint32_t> unused_splits, unused_lists;
    /* Writes come in runs by one writer: the last one found ordered in this access. */
    epoch last_known;
    bool has_last = false;
};

} // namespace sim

#endif
