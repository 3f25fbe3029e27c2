/* TMA and bulk copies: checked where they are issued, done later and in parts. */
#include <algorithm>
#include <cstring>

#include "sim/access.h"
#include "sim/copy_work.h"
#include "sim/gather.h"
#include "sim/mbarrier.h"
#include "sim/operations.h"
#include "sim/product.h"
#include "sim/report.h"

namespace sim {

namespace {

const unsigned char POISON = 0xff; /* NaN in bf16 and in fp32 */

tensor_map_desc read_map(thread &t, const tensor_map *map, unsigned dims, const char *what) {
    const grid &g = *t.of->of->of;
    const char *at = (const char *)map, *parameters = (const char *)g.parameters;
    if ((uintptr_t)map % 64 != 0)
        fail(t, fault::tensor_map, "%s with a map at %p, expected a multiple of 64", what, (const void *)map);
    if (at < parameters || at + sizeof *map > parameters + g.how.parameter_bytes) {
        size_t offset;
        allocation &a = global_at(t, map, sizeof *map, 64, "a tensor map", &offset);
        check_global(t, a, offset, sizeof *map, access::READ, thread_observer(t, 0), "a tensor map's read");
    }
    tensor_map_desc desc;
    if (!decode_tensor_map(map, &desc))
        fail(t, fault::tensor_map, "%s with a map at %p, where no tensor map has been encoded", what,
             (const void *)map);
    if (dims != 0 && desc.dims != dims)
        fail(t, fault::tensor_map, "%s with %u coordinates of a map of %u dimensions", what, dims, desc.dims);
    return desc;
}

tensor_box read_box(thread &t, const tensor_map *map, const int32_t *coordinates, unsigned dims, const char *what) {
    const tensor_box box(read_map(t, map, dims, what), coordinates);
    const int64_t at = (int64_t)coordinates[0] * (box.desc().element == TENSOR_F32 ? 4 : 2);
    if (at % 16 != 0)
        fail(t, fault::tensor_map, "%s at innermost coordinate %d, which is %lld bytes, expected a multiple of 16",
             what, coordinates[0], (long long)at);
    return box;
}

/* A store is clipped at the upper edges only, and at the innermost one by 16 bytes. */
tensor_box read_stored_box(thread &t, const tensor_map *map, const int32_t *coordinates, unsigned dims,
                           const char *what) {
    const tensor_box box = read_box(t, map, coordinates, dims, what);
    for (unsigned i = 0; i < dims; i++)
        if (coordinates[i] < 0)
            fail(t, fault::tensor_map, "%s at coordinate %u = %d, expected 0 or more", what, i, coordinates[i]);
    const tensor_map_desc &map_of = box.desc();
    const uint64_t size = map_of.size[0] * (map_of.element == TENSOR_F32 ? 4 : 2);
    if (size % 16 != 0 && coordinates[0] + (uint64_t)map_of.box[0] > map_of.size[0])
        fail(t, fault::tensor_map,
             "%s of a box that ends past innermost size %llu, which is %llu bytes, expected a multiple of 16", what,
             (unsigned long long)map_of.size[0], (unsigned long long)size);
    return box;
}

uint8_t layout_flag(const copy_shape &s) {
    return s.is_tensor && s.box.desc().swizzle == TENSOR_SWIZZLE_128B ? SWIZZLED : LINEAR;
}

/* All parts of global memory that the copy touches. */
void check_global_side(thread &t, const copy_shape &s, access kind, const observer &by, const char *what) {
    for (uint32_t i = 0; i < s.parts(); i++) {
        const tensor_box::row r = s.part(i);
        if (r.bytes == 0)
            continue;
        size_t offset;
        allocation &a = global_at(t, r.data, r.bytes, 1, what, &offset);
        check_global(t, a, offset, r.bytes, kind, by, what);
        see_late_stores(t, r.data, r.bytes);
    }
}

void load_into(thread &t, const copy_shape &shape, cta &to, uint32_t destination, uint32_t bar, const char *what) {
    machine::impl &m = *t.of->home;
    const size_t offset = shared_offset(t, to, destination, shape.bytes(), shape.is_tensor ? 128 : 16, what);
    mbarrier &b = mbarrier_at(t, to, bar, true, what);
    m.note_clock(b.actor, true, b.clock_now(), t.where);
    b.last_copy = b.clock_now();
    const thread_observer by(t, b.actor, b.clock_now(), layout_flag(shape), FENCED_SHARED);
    check_shared(t, to, offset, shape.bytes(), access::WRITE, by, what);
    memset(&to.shared[offset], POISON, shape.bytes());
    b.copies++;
    to.landing++;
    m.add_work(std::make_unique<load_work>(shape, to, offset, b, origin_of(t)));
}

void load(thread &t, const copy_shape &shape, uint32_t destination, uint32_t bar, uint32_t mask, const char *what) {
    const cluster &group = *t.of->of->group;
    machine::impl &m = *t.of->home;
    not_polling(t);
    m.maybe_leave(t);
    t.of->accessed |= 1u << t.lane;
    if (mask >> group.members.size() != 0)
        fail(t, fault::bounds, "%s with cluster mask 0x%x in a cluster of %zu CTAs", what, mask, group.members.size());
    bool first = true;
    for (unsigned rank = 0; rank < group.members.size(); rank++) {
        if ((mask >> rank & 1) == 0)
            continue;
        cta *to = group.members[rank];
        if (to == nullptr || to->ended)
            fail(t, fault::lifetime, "%s to CTA %u of the cluster, which has ended", what, rank);
        if (first) {
            const mbarrier &b = mbarrier_at(t, *to, bar, true, what);
            const thread_observer by(t, b.actor, b.clock_now(), 0, FENCED_GLOBAL);
            check_global_side(t, shape, access::READ, by, what);
            first = false;
        }
        load_into(t, shape, *to, destination, bar, what);
    }
    m.counters.copies++;
}

bulk_groups &groups_of(thread &t) {
    if (t.bulk != nullptr)
        return *t.bulk;
    t.bulk = std::make_shared<bulk_groups>();
    machine::impl &m = *t.of->home;
    cta &c = *t.of->of;
    const std::string who = format_text("device %u %s lane %u", c.of->device, warp_name(*t.of).c_str(), t.lane);
    t.bulk->reads_actor = m.new_async_actor(&c, "a bulk store's read for " + who);
    t.bulk->writes_actor = m.new_async_actor(&c, "a bulk store of " + who);
    t.bulk->reads_clock = m.async_clocks[t.bulk->reads_actor];
    t.bulk->writes_clock = m.async_clocks[t.bulk->writes_actor];
    return *t.bulk;
}

void store(thread &t, const copy_shape &shape, uint32_t source, bool adds, const char *what) {
    machine::impl &m = *t.of->home;
    cta &c = *t.of->of;
    not_polling(t);
    m.maybe_leave(t);
    t.of->accessed |= 1u << t.lane;
    const size_t offset = shared_offset(t, c, source, shape.bytes(), shape.is_tensor ? 128 : 16, what);
    bulk_groups &groups = groups_of(t);
    const uint32_t reads = groups.reads_clock + groups.open(), writes = groups.writes_clock + groups.open();
    m.note_clock(groups.reads_actor, true, reads, t.where);
    m.note_clock(groups.writes_actor, true, writes, t.where);
    check_shared(t, c, offset, shape.bytes(), access::READ,
                 thread_observer(t, groups.reads_actor, reads, 0, FENCED_SHARED), what);
    check_global_side(t, shape, adds ? access::MODIFY : access::WRITE,
                      thread_observer(t, groups.writes_actor, writes, adds ? ATOMIC : 0, FENCED_GLOBAL), what);
    for (uint32_t i = 0; !adds && i < shape.parts(); i++)
        if (shape.part(i).bytes > 0)
            memset(shape.part(i).data, POISON, shape.part(i).bytes);
    groups.last_used = groups.open();
    groups.at(groups.open()).reads++;
    groups.at(groups.open()).writes++;
    c.reading++;
    c.of->copies++;
    m.counters.copies++;
    m.add_work(std::make_unique<store_work>(shape, c, offset, t.bulk, adds));
}

copy_shape contiguous(thread &t, const void *global, uint32_t bytes, const char *what) {
    if (bytes == 0 || bytes % 16 != 0)
        fail(t, fault::alignment, "%s of %u bytes, expected a multiple of 16", what, bytes);
    if ((uintptr_t)global % 16 != 0)
        fail(t, fault::alignment, "%s at %p, expected a multiple of 16", what, global);
    return copy_shape((char *)const_cast<void *>(global), bytes);
}

} // namespace

bool bulk_groups::done(uint32_t until, bool reading) const {
    for (uint32_t g = first; g <= until && g < open(); g++) {
        const group &one = pending[g - first];
        if (one.reads > 0 || (!reading && one.writes > 0))
            return false;
    }
    return true;
}

void tma_load(uint32_t destination, const tensor_map *map, uint32_t bar, const int32_t *coordinates, unsigned dims,
              uint16_t cluster_mask) {
    thread &t = enter(__builtin_return_address(0));
    const copy_shape shape(read_box(t, map, coordinates, dims, "tma_load"));
    load(t, shape, destination, bar, cluster_mask != 0 ? cluster_mask : 1u << t.of->of->rank, "tma_load");
}

void tma_store(const tensor_map *map, uint32_t source, const int32_t *coordinates, unsigned dims) {
    thread &t = enter(__builtin_return_address(0));
    store(t, copy_shape(read_stored_box(t, map, coordinates, dims, "tma_store")), source, false, "tma_store");
}

void tma_reduce_add(const tensor_map *map, uint32_t source, const int32_t *coordinates, unsigned dims) {
    thread &t = enter(__builtin_return_address(0));
    store(t, copy_shape(read_stored_box(t, map, coordinates, dims, "tma_reduce_add")), source, true, "tma_reduce_add");
}

void tma_prefetch(const tensor_map *map, unsigned dims) {
    read_map(enter(__builtin_return_address(0)), map, dims, "a prefetch");
}

void bulk_load(uint32_t destination, const void *source, uint32_t bytes, uint32_t bar) {
    thread &t = enter(__builtin_return_address(0));
    load(t, contiguous(t, source, bytes, "bulk_load"), destination, bar, 1u << t.of->of->rank, "bulk_load");
}

void bulk_store(void *destination, uint32_t source, uint32_t bytes) {
    thread &t = enter(__builtin_return_address(0));
    store(t, contiguous(t, destination, bytes, "bulk_store"), source, false, "bulk_store");
}

void bulk_commit() {
    thread &t = enter(__builtin_return_address(0));
    if (t.bulk != nullptr)
        t.bulk->pending.emplace_back();
}

void bulk_wait(unsigned pending, bool reads_only) {
    thread &t = enter(__builtin_return_address(0));
    if (t.bulk == nullptr)
        return;
    bulk_groups &groups = *t.bulk;
    const uint32_t closed = groups.open() - 1, until = closed > pending ? closed - pending : 0;
    if (!groups.done(until, reads_only)) {
        groups.waiter = &t;
        groups.waited = until;
        groups.reads_only = reads_only;
        t.of->home->park(t, wait_for::BULK);
    }
    learn_async(t, groups.reads_actor, groups.reads_clock + until);
    learn_done(t);
    if (!reads_only)
        learn_async(t, groups.writes_actor, groups.writes_clock + until);
    while (groups.pending.size() > 1 && groups.done(groups.first, false)) {
        groups.pending.pop_front();
        groups.first++;
    }
}

} // namespace sim
