/* The rules by which two accesses clash. */
#include "sim/shadow.h"

#include <algorithm>

namespace sim {

namespace {

/* Unordered readers that are remembered of a cell. A writer that is not ordered after a reader is hardly ordered after
 * all of the last eight. */
const size_t MOST_READERS = 8;

bool is_split(const cell &c) {
    return c.write.has(SPECIAL);
}

/* Two accesses of which neither needs an order. */
bool both_atomic(const epoch &e, const observer &by) {
    return e.has(ATOMIC) && by.self.has(ATOMIC) && ((e.has(SYSTEM) && by.self.has(SYSTEM)) || by.same_device(e));
}

readers one_reader(const epoch &e) {
    return {e, e.has(ASYNC) ? 0 : 1u << e.lane};
}

/* One of them that is not known; never: all are. */
epoch unknown_reader(const readers &r, const observer &by) {
    epoch e = r.first;
    if ((r.lanes & (r.lanes - 1)) == 0)
        return by.knows(e, KNOWN) ? epoch() : e;
    for (uint32_t left = r.lanes; left != 0; left &= left - 1) {
        e.lane = (uint8_t)__builtin_ctz(left);
        if (!by.knows(e, KNOWN))
            return e;
    }
    return epoch();
}

} // namespace

clash shadow::read(region_shadow &r, size_t offset, size_t bytes, const observer &by) {
    return access(action::READ, r, offset, bytes, by);
}

clash shadow::write(region_shadow &r, size_t offset, size_t bytes, const observer &by) {
    return access(action::WRITE, r, offset, bytes, by);
}

clash shadow::modify(region_shadow &r, size_t offset, size_t bytes, const observer &by) {
    return access(action::MODIFY, r, offset, bytes, by);
}

clash shadow::access(action what, region_shadow &r, size_t offset, size_t bytes, const observer &by) {
    clash found;
    has_last = false;
    const size_t end = offset + bytes;
    for (size_t at = offset & ~(size_t)15; at < end; at += 16) {
        accesses++;
        cell &c = r.cells[at / 16];
        const bool whole = at >= offset && at + 16 <= end;
        if (whole && !is_split(c)) {
            if (!touch(what, c, by, found)) {
                found.offset = at;
                return found;
            }
            continue;
        }
        cell *pieces = is_split(c) ? splits[c.write.clock].data() : split(c);
        const size_t first = at < offset ? (offset - at) / 2 : 0, last = std::min<size_t>(8, (end - at + 1) / 2);
        for (size_t i = first; i < last; i++) {
            if (!touch(what, pieces[i], by, found)) {
                found.offset = at + 2 * i;
                return found;
            }
        }
        if (whole)
            unite(c);
    }
    return found;
}

bool shadow::touch(action what, cell &c, const observer &by, clash &found) {
    if (what != action::WRITE && c.write.never()) {
        found.kind = conflict::uninitialised;
        return false;
    }
    if (!check_write(c, by, found))
        return false;
    if (what == action::READ) {
        if (c.read != by.self)
            note_read(c, by);
        return true;
    }
    if (!c.read.never() && !check_reads(c, by, found))
        return false;
    forget_reads(c);
    c.write = by.self;
    return true;
}

bool shadow::check_write(const cell &c, const observer &by, clash &found) {
    const epoch &w = c.write;
    if (w.never() || (has_last && w == last_known))
        return true;
    if (w.has(MBARRIER) && !by.self.has(MBARRIER)) {
        found.kind = conflict::over_mbarrier;
        found.earlier = w;
        return false;
    }
    if (both_atomic(w, by))
        return true;
    if (!by.knows(w, by.writes_seen)) {
        found.kind = by.writes_seen != KNOWN && by.knows(w, KNOWN) ? conflict::proxy : conflict::race;
        found.earlier = w;
        found.earlier_writes = true;
        return false;
    }
    last_known = w;
    has_last = true;
    return true;
}

bool shadow::check_reads(const cell &c, const observer &by, clash &found) {
    const auto ordered = [&](const readers &r) {
        const epoch unknown = both_atomic(r.first, by) ? epoch() : unknown_reader(r, by);
        if (unknown.never())
            return true;
        found.kind = conflict::race;
        found.earlier = unknown;
        return false;
    };
    if (!c.read.has(SPECIAL))
        return ordered(one_reader(c.read));
    for (const readers &r : reader_lists[c.read.clock - 1])
        if (!ordered(r))
            return false;
    return true;
}

/* Keeps the readers that a later write must be ordered after: one that this reader knows of is covered by it, unless
 * only one of the two is atomic. */
void shadow::note_read(cell &c, const observer &by) {
    const readers self = one_reader(by.self);
    const auto covered = [&](const readers &r) {
        return ((r.first.flags ^ self.first.flags) & ATOMIC) == 0 && unknown_reader(r, by).never();
    };
    if (c.read.never() || (!c.read.has(SPECIAL) && covered(one_reader(c.read)))) {
        c.read = by.self;
        return;
    }
    if (!c.read.has(SPECIAL)) {
        const readers before = one_reader(c.read);
        if (unused_lists.empty()) {
            unused_lists.push_back((uint32_t)reader_lists.size());
            reader_lists.emplace_back();
        }
        c.read = epoch();
        c.read.clock = unused_lists.back() + 1;
        c.read.flags = SPECIAL;
        unused_lists.pop_back();
        reader_lists[c.read.clock - 1].assign({before});
    }
    std::vector<readers> &list = reader_lists[c.read.clock - 1];
    for (readers &r : list) {
        if (r.first.actor != self.first.actor || ((r.first.flags ^ self.first.flags) & (ASYNC | ATOMIC)) != 0)
            continue;
        if (r.first == self.first || (r.first.clock == self.first.clock && !r.first.has(ASYNC))) {
            r.lanes |= self.lanes;
            return;
        }
        if (covered(r)) {
            r = self;
            return;
        }
    }
    list.erase(std::remove_if(list.begin(), list.end(), covered), list.end());
    if (list.size() == MOST_READERS)
        list[(self.first.actor * 5u + self.first.clock) % MOST_READERS] = self;
    else
        list.push_back(self);
}

void shadow::forget_reads(cell &c) {
    if (c.read.has(SPECIAL))
        unused_lists.push_back(c.read.clock - 1);
    c.read = epoch();
}

cell *shadow::split(cell &c) {
    if (unused_splits.empty()) {
        unused_splits.push_back((uint32_t)splits.size());
        splits.emplace_back();
    }
    const uint32_t at = unused_splits.back();
    unused_splits.pop_back();
    for (cell &piece : splits[at]) {
        piece = c;
        if (c.read.has(SPECIAL)) {
            const std::vector<readers> list = reader_lists[c.read.clock - 1];
            reader_lists.push_back(list);
            piece.read.clock = (uint32_t)reader_lists.size();
        }
    }
    forget_reads(c);
    c.write = epoch();
    c.write.clock = at;
    c.write.flags = SPECIAL;
    return splits[at].data();
}

/* A granule whose pieces have the same history is one cell again. */
void shadow::unite(cell &c) {
    const uint32_t at = c.write.clock;
    const std::array<cell, 8> &pieces = splits[at];
    for (const cell &piece : pieces)
        if (piece.write != pieces[0].write || piece.read != pieces[0].read || piece.read.has(SPECIAL))
            return;
    c = pieces[0];
    unused_splits.push_back(at);
}

uint8_t shadow::flags_at(const region_shadow &r, size_t offset) const {
    const cell &c = r.cells[offset / 16];
    return is_split(c) ? splits[c.write.clock][offset % 16 / 2].write.flags : c.write.flags;
}

void region_shadow::release(shadow &s) {
    for (cell &c : cells) {
        if (is_split(c)) {
            for (cell &piece : s.splits[c.write.clock])
                s.forget_reads(piece);
            s.unused_splits.push_back(c.write.clock);
        } else {
            s.forget_reads(c);
        }
    }
    cells.clear();
}

} // namespace sim
