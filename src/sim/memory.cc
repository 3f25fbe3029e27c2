/* Every allocation is a mapping of its own between two margins, so that a small overrun meets no other allocation. */
#include "sim/memory.h"

#include <sys/mman.h>

#include <cstring>

namespace sim {

namespace {

const size_t MARGIN = 4096;

} // namespace

global_memory::~global_memory() {
    for (auto &entry : by_address)
        munmap(entry.second->mapping, entry.second->mapping_bytes);
}

void *global_memory::allocate(int device, size_t bytes) {
    auto made = std::make_unique<allocation>();
    made->mapping_bytes = (bytes + MARGIN - 1) / MARGIN * MARGIN + 2 * MARGIN;
    made->mapping =
        mmap(nullptr, made->mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made->mapping == MAP_FAILED)
        return nullptr;
    made->data = (char *)made->mapping + MARGIN;
    made->bytes = bytes;
    made->device = device;
    made->cells.resize(bytes);
    memset(made->data, 0xff, bytes);
    void *data = made->data;
    by_address[(uintptr_t)data] = std::move(made);
    return data;
}

bool global_memory::free(void *memory) {
    const auto at = by_address.find((uintptr_t)memory);
    if (at == by_address.end())
        return false;
    at->second->cells.release(shade);
    munmap(at->second->mapping, at->second->mapping_bytes);
    last = nullptr;
    by_address.erase(at);
    return true;
}

allocation *global_memory::find(const void *address, size_t bytes) {
    const uintptr_t a = (uintptr_t)address;
    const auto holds = [&](const allocation &of) {
        const uintptr_t begin = (uintptr_t)of.data;
        return a >= begin && bytes <= of.bytes && a - begin <= of.bytes - bytes;
    };
    if (last != nullptr && holds(*last))
        return last;
    auto after = by_address.upper_bound(a);
    if (after == by_address.begin())
        return nullptr;
    allocation *candidate = (--after)->second.get();
    if (!holds(*candidate))
        return nullptr;
    last = candidate;
    return candidate;
}

const allocation *global_memory::nearest(const void *address) const {
    auto after = by_address.upper_bound((uintptr_t)address);
    if (after != by_address.begin())
        return std::prev(after)->second.get();
    return after != by_address.end() ? after->second.get() : nullptr;
}

} // namespace sim
