/* Late stores arrive a few at a time. */
#include "sim/late.h"

#include <cstring>

#include "sim/machine.h"

namespace sim {

namespace {

struct arrivals final : async_work {
    arrivals(machine::impl &of, late_stores &s) : m(of), stores(s) {}
    bool step() override {
        if (stores.size() > 0)
            stores.arrive(m, 1 + m.random.below((uint32_t)stores.size()));
        stores.listed = stores.size() > 0;
        return !stores.listed;
    }
    machine::impl &m;
    late_stores &stores;
};

} // namespace

void late_stores::add(machine::impl &m, void *to, const void *value, size_t bytes) {
    queue.emplace_back();
    one &s = queue.back();
    s.to = (char *)to;
    s.bytes = bytes;
    memcpy(s.value, value, bytes);
    if (!listed) {
        listed = true;
        m.add_work(std::make_unique<arrivals>(m, *this));
    }
}

void late_stores::arrive(machine::impl &m, size_t count) {
    for (; count > 0; count--) {
        const one &s = queue.front();
        memcpy(s.to, s.value, s.bytes);
        m.changed(s.to, s.bytes);
        queue.pop_front();
    }
}

void late_stores::arrive_at(machine::impl &m, const void *address, size_t bytes) {
    const char *begin = (const char *)address;
    for (size_t i = queue.size(); i > 0; i--)
        if (queue[i - 1].to < begin + bytes && queue[i - 1].to + queue[i - 1].bytes > begin)
            return arrive(m, i);
}

} // namespace sim
