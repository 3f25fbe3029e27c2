/* The bytes of copies, moved when the scheduler says so. */
#include "sim/copy_work.h"

#include <algorithm>
#include <cstring>

#include "sim/mbarrier.h"
#include "sim/operations.h"
#include "sim/product.h"
#include "sim/where.h"

namespace sim {

namespace {

const uint32_t BULK_PART = 2048;

/* Where byte `at` of a copy lies in shared memory: swizzled by bits of its address, 16 bytes at a time. */
size_t shared_place(const copy_shape &s, size_t offset, uint32_t at) {
    if (!s.is_tensor || s.box.desc().swizzle != TENSOR_SWIZZLE_128B)
        return offset + at;
    return swizzled((uint32_t)(SHARED_BASE + offset + at)) - SHARED_BASE;
}

void add_bf16(char *to, const char *with, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 2) {
        uint16_t halves[2];
        memcpy(&halves[0], to + i, 2);
        memcpy(&halves[1], with + i, 2);
        uint32_t wide[2] = {(uint32_t)halves[0] << 16, (uint32_t)halves[1] << 16};
        float values[2];
        memcpy(values, wide, sizeof values);
        values[0] += values[1];
        memcpy(&wide[0], &values[0], 4);
        const uint16_t sum = (uint16_t)round_bf16(wide[0]);
        memcpy(to + i, &sum, 2);
    }
}

void add_f32(char *to, const char *with, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 4) {
        float values[2];
        memcpy(&values[0], to + i, 4);
        memcpy(&values[1], with + i, 4);
        values[0] += values[1];
        memcpy(to + i, &values[0], 4);
    }
}

} // namespace

uint32_t copy_shape::parts() const {
    return is_tensor ? box.rows() : (total + BULK_PART - 1) / BULK_PART;
}

uint32_t copy_shape::part_bytes(uint32_t number) const {
    return is_tensor ? box.row_bytes() : std::min(BULK_PART, total - number * BULK_PART);
}

tensor_box::row copy_shape::part(uint32_t number) const {
    if (is_tensor)
        return box.at(number);
    tensor_box::row r;
    r.data = data + number * BULK_PART;
    r.bytes = part_bytes(number);
    return r;
}

copy_origin origin_of(const thread &t) {
    const cta &c = *t.of->of;
    return {t.where, c.of->device, c.index, t.of->index, t.lane};
}

/* Often the whole copy at once, sometimes a few parts. */
static uint32_t parts_now(random_source &random, uint32_t left) {
    return random.one_in(2) ? left : 1 + random.below(left);
}

bool load_work::step() {
    machine::impl &m = *to.of->home;
    const uint32_t now = parts_now(m.random, shape.parts() - next);
    const uint32_t before = landed;
    char part[1024 > BULK_PART ? 1024 : BULK_PART];
    for (uint32_t i = 0; i < now; i++, next++) {
        const tensor_box::row r = shape.part(next);
        const uint32_t size = shape.part_bytes(next);
        if (r.bytes < size)
            memset(part, 0, size);
        if (r.bytes > 0)
            memcpy(part + r.offset, r.data, r.bytes);
        for (uint32_t at = 0; at < size; at += 16)
            memcpy(&to.shared[shared_place(shape, offset, landed + at)], part + at, 16);
        landed += size;
    }
    const bool last = next == shape.parts();
    to.landing -= last;
    std::string wrong = mbarrier_land(bar, phase, landed - before, last);
    if (!wrong.empty()) {
        m.record(nullptr, fault::mbarrier, std::move(wrong));
        report &r = m.reports.back();
        r.device = (int)origin.device;
        r.cta = (int)origin.cta;
        r.warp = (int)origin.warp;
        r.lane = (int)origin.lane;
        const std::vector<source_line> &lines = source_lines(origin.where);
        if (!lines.empty()) {
            r.file = lines[0].file;
            r.line = lines[0].line;
        }
    }
    return last;
}

void store_work::read() {
    bytes.resize(shape.bytes());
    for (uint32_t at = 0; at < shape.bytes(); at += 16)
        memcpy(&bytes[at], &from.shared[shared_place(shape, offset, at)], 16);
    from.reading--;
    groups->at(number).reads--;
    wake();
}

void store_work::write(uint32_t part) {
    const tensor_box::row r = shape.part(part);
    if (r.bytes > 0) {
        const char *with = &bytes[done + r.offset];
        if (!adds)
            memcpy(r.data, with, r.bytes);
        else if (shape.box.desc().element == TENSOR_F32)
            add_f32(r.data, with, r.bytes);
        else
            add_bf16(r.data, with, r.bytes);
        of.home->changed(r.data, r.bytes);
    }
    done += shape.part_bytes(part);
}

void store_work::wake() {
    thread *waiter = groups->waiter;
    if (waiter == nullptr || !groups->done(groups->waited, groups->reads_only))
        return;
    groups->waiter = nullptr;
    of.home->make_ready(*waiter);
}

bool store_work::step() {
    if (bytes.empty()) {
        read();
        return false;
    }
    const uint32_t now = parts_now(of.home->random, shape.parts() - next);
    for (uint32_t i = 0; i < now; i++)
        write(next++);
    if (next < shape.parts())
        return false;
    groups->at(number).writes--;
    wake();
    if (--of.copies == 0)
        of.home->attention = true;
    return true;
}

} // namespace sim
