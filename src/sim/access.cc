/* Ordinary loads and stores of shared and global memory. */
#include "sim/access.h"

#include <cstring>

#include "sim/gather.h"
#include "sim/operations.h"
#include "sim/report.h"

namespace sim {

namespace {

clash note(shadow &s, region_shadow &r, size_t offset, size_t bytes, access kind, const observer &by) {
    switch (kind) {
    case access::READ:
        return s.read(r, offset, bytes, by);
    case access::WRITE:
        return s.write(r, offset, bytes, by);
    case access::MODIFY:
        return s.modify(r, offset, bytes, by);
    }
    return clash();
}

void wrote(thread &t, view space) {
    t.unfenced[space] = label(t);
}

[[noreturn]] void fail_outside(thread &t, const void *address, size_t bytes, const char *what) {
    const allocation *near = t.of->home->memory.nearest(address);
    if (near == nullptr)
        fail(t, fault::bounds, "%s of %zu bytes at %p, where no memory is allocated", what, bytes, address);
    fail(t, fault::bounds, "%s of %zu bytes at %p, which is %+td from the start of the nearest allocation of %zu bytes",
         what, bytes, address, (const char *)address - near->data, near->bytes);
}

} // namespace

size_t shared_offset(thread &t, const cta &c, uint32_t address, size_t bytes, size_t alignment, const char *what) {
    if (address % alignment != 0)
        fail(t, fault::alignment, "%s at shared address 0x%x, expected a multiple of %zu", what, address, alignment);
    if (address < SHARED_BASE || address - SHARED_BASE + bytes > c.shared.size())
        fail(t, fault::bounds, "%s of %zu bytes at shared address base%+d of %zu bytes", what, bytes,
             (int)(address - SHARED_BASE), c.shared.size());
    return address - SHARED_BASE;
}

allocation &global_at(thread &t, const void *address, size_t bytes, size_t alignment, const char *what,
                      size_t *offset) {
    if ((uintptr_t)address % alignment != 0)
        fail(t, fault::alignment, "%s at %p, expected a multiple of %zu", what, address, alignment);
    allocation *a = t.of->home->memory.find(address, bytes);
    if (a == nullptr)
        fail_outside(t, address, bytes, what);
    *offset = (size_t)((const char *)address - a->data);
    return *a;
}

void check_shared(thread &t, cta &c, size_t offset, size_t bytes, access kind, const observer &by, const char *what) {
    machine::impl &m = *t.of->home;
    if (!m.options.check_order)
        return;
    const clash found = note(m.shade, c.cells, offset, bytes, kind, by);
    if (found.kind != conflict::none)
        fail_clash(t, what, c, found);
}

void check_global(thread &t, allocation &a, size_t offset, size_t bytes, access kind, const observer &by,
                  const char *what) {
    machine::impl &m = *t.of->home;
    if (!m.options.check_order)
        return;
    const clash found = note(m.shade, a.cells, offset, bytes, kind, by);
    if (found.kind != conflict::none)
        fail_clash(t, what, a, found);
}

void see_late_stores(thread &t, const void *address, size_t bytes) {
    machine::impl &m = *t.of->home;
    m.devices[t.of->of->of->device].late->arrive_at(m, address, bytes);
}

void load(const void *address, void *value, size_t bytes) {
    thread &t = enter(__builtin_return_address(0));
    size_t offset;
    allocation &a = global_at(t, address, bytes, bytes, "a load", &offset);
    t.of->accessed |= 1u << t.lane;
    check_global(t, a, offset, bytes, access::READ, thread_observer(t, 0), "a load");
    see_late_stores(t, address, bytes);
    memcpy(value, address, bytes);
}

void store(void *address, const void *value, size_t bytes) {
    thread &t = enter(__builtin_return_address(0));
    size_t offset;
    allocation &a = global_at(t, address, bytes, bytes, "a store", &offset);
    not_polling(t);
    t.of->accessed |= 1u << t.lane;
    check_global(t, a, offset, bytes, access::WRITE, thread_observer(t, 0), "a store");
    wrote(t, FENCED_GLOBAL);
    machine::impl &m = *t.of->home;
    const unsigned device = t.of->of->of->device;
    if (a.device != (int)device)
        return m.devices[device].late->add(m, address, value, bytes);
    memcpy(address, value, bytes);
    m.changed(address, bytes);
}

void smem_load(uint32_t address, void *value, size_t bytes) {
    thread &t = enter(__builtin_return_address(0));
    cta &c = *t.of->of;
    const size_t offset = shared_offset(t, c, address, bytes, bytes, "smem_load");
    t.of->accessed |= 1u << t.lane;
    check_shared(t, c, offset, bytes, access::READ, thread_observer(t, 0), "a load");
    memcpy(value, &c.shared[offset], bytes);
}

void smem_store(uint32_t address, const void *value, size_t bytes) {
    thread &t = enter(__builtin_return_address(0));
    cta &c = *t.of->of;
    const size_t offset = shared_offset(t, c, address, bytes, bytes, "smem_store");
    not_polling(t);
    t.of->accessed |= 1u << t.lane;
    check_shared(t, c, offset, bytes, access::WRITE, thread_observer(t, 0), "a store");
    wrote(t, FENCED_SHARED);
    memcpy(&c.shared[offset], value, bytes);
    t.of->home->progress++;
}

/* Relaxed: atomic, and orders nothing. */
uint32_t smem_fetch_add(uint32_t address, uint32_t value) {
    thread &t = enter(__builtin_return_address(0));
    cta &c = *t.of->of;
    const size_t offset = shared_offset(t, c, address, sizeof value, sizeof value, "smem_fetch_add");
    not_polling(t);
    t.of->home->maybe_leave(t);
    t.of->accessed |= 1u << t.lane;
    check_shared(t, c, offset, sizeof value, access::MODIFY, thread_observer(t, ATOMIC), "smem_fetch_add");
    wrote(t, FENCED_SHARED);
    uint32_t old;
    memcpy(&old, &c.shared[offset], sizeof old);
    value += old;
    memcpy(&c.shared[offset], &value, sizeof value);
    t.of->home->progress++;
    return old;
}

} // namespace sim
