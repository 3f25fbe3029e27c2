/* Copies under way. */
#ifndef SIM_COPY_WORK_H
#define SIM_COPY_WORK_H

#include "sim/machine.h"
#include "sim/tensor.h"

namespace sim {

/* The global side of a copy, in parts: the rows of a box, or pieces of 16 bytes to 2 KiB. */
struct copy_shape {
    explicit copy_shape(const tensor_box &b) : is_tensor(true), box(b) {}
    copy_shape(char *global, uint32_t size)
        : is_tensor(false), box(tensor_map_desc(), nullptr), data(global), total(size) {}

    uint32_t parts() const;
    uint32_t part_bytes(uint32_t number) const; /* in shared memory */
    tensor_box::row part(uint32_t number) const;
    uint32_t bytes() const { return is_tensor ? box.bytes() : total; }

    bool is_tensor;
    tensor_box box;
    char *data = nullptr;
    uint32_t total = 0;
};

/* Who issued a copy, for faults that come later. */
struct copy_origin {
    const void *where;
    unsigned device, cta, warp, lane;
};
copy_origin origin_of(const thread &t);

/* global -> one CTA's shared memory; bytes land on an mbarrier as they come. */
class load_work final : public async_work {
  public:
    load_work(const copy_shape &s, cta &c, size_t at, mbarrier &b, const copy_origin &from)
        : shape(s), to(c), offset(at), bar(b), phase(b.phase), origin(from) {}
    bool step() override;

  private:
    const copy_shape shape;
    cta &to;
    const size_t offset;
    mbarrier &bar;
    const uint32_t phase;
    const copy_origin origin;
    uint32_t next = 0, landed = 0;
};

/* shared -> global: reads all at one time, writes in parts at later times. */
class store_work final : public async_work {
  public:
    store_work(const copy_shape &s, cta &c, size_t at, std::shared_ptr<bulk_groups> g, bool add)
        : shape(s), from(c), of(*c.of), offset(at), groups(std::move(g)), number(groups->open()), adds(add) {}
    bool step() override;

  private:
    void read();
    void write(uint32_t part);
    void wake();

    const copy_shape shape;
    cta &from; /* until it has been read */
    grid &of;
    const size_t offset;
    const std::shared_ptr<bulk_groups> groups;
    const uint32_t number; /* of the group */
    const bool adds;
    std::vector<char> bytes;
    uint32_t next = 0, done = 0;
};

} // namespace sim

#endif
