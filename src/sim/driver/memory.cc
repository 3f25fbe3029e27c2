/* Memory of the devices and pinned memory of the host, copies and fills. */
#include <cstring>
#include <map>

#include "sim/driver/gpus.h"

using namespace sim::driver;

namespace {

/* What was allocated and not freed; under the lock. */
struct block {
    int device; /* -1: of the host */
    size_t bytes;
    bool in_stream, going;
};
std::map<void *, block> blocks;

void *pointer_of(mm_cu_pointer address) {
    return reinterpret_cast<void *>(address);
}

mm_cu_result allocate(gpus &g, int device, size_t bytes, bool in_stream, void **out) {
    if (mm_cu_result result = g.health(); result != MM_CUDA_SUCCESS)
        return result;
    if (bytes == 0)
        return MM_CUDA_ERROR_INVALID_VALUE;
    *out = g.allocate(device, bytes, in_stream);
    if (!*out)
        return MM_CUDA_ERROR_OUT_OF_MEMORY;
    blocks[*out] = {device, bytes, in_stream, false};
    return MM_CUDA_SUCCESS;
}

void give_up(gpus &g, void *memory) {
    const block freed = blocks[memory];
    blocks.erase(memory);
    g.free(memory, freed.device, freed.bytes, freed.in_stream);
}

/* nullptr: there is no such block, or it goes already. */
block *block_of(void *memory) {
    auto found = blocks.find(memory);
    return found == blocks.end() || found->second.going ? nullptr : &found->second;
}

/* Waits for everything that is queued, as the real one does, unless the memory was made in a stream. */
mm_cu_result release(void *memory) {
    gpus &g = *the_gpus();
    auto held = g.lock();
    const block *found = block_of(memory);
    if (!found)
        return MM_CUDA_ERROR_INVALID_VALUE;
    if (!found->in_stream)
        if (mm_cu_result result = g.wait_for_device(held, found->device); result != MM_CUDA_SUCCESS)
            return result;
    give_up(g, memory);
    return MM_CUDA_SUCCESS;
}

bool is_known(gpus &g, const void *address, size_t bytes) {
    int device;
    return g.sim.find(address, bytes, &device);
}

int device_of(mm_cu_stream handle) {
    return handle ? reinterpret_cast<const stream *>(handle)->device : current_context()->device;
}

/* Memory that a stream's device can copy to and from. */
bool is_reachable(gpus &g, mm_cu_stream handle, const void *address, size_t bytes) {
    return is_known(g, address, bytes) && may_access(address, device_of(handle));
}

/* Whether a copy or a fill can be queued. */
mm_cu_result check(gpus &g, mm_cu_stream handle, const void *address, size_t bytes) {
    const mm_cu_result result = g.health();
    return result != MM_CUDA_SUCCESS || is_reachable(g, handle, address, bytes) ? result : MM_CUDA_ERROR_INVALID_VALUE;
}

bool is_captured(mm_cu_stream handle) {
    return handle && reinterpret_cast<stream *>(handle)->capture;
}

void do_or_keep(gpus &g, mm_cu_stream handle, sim::stream s, const work &what) {
    if (!keep_work(reinterpret_cast<stream *>(handle), what))
        what(g, s);
}

} // namespace

SIM_DRIVER_API cuMemAlloc_v2(mm_cu_pointer *address, size_t bytes) {
    if (!current_context())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    void *memory = nullptr;
    mm_cu_result result = allocate(g, current_context()->device, bytes, false, &memory);
    *address = reinterpret_cast<mm_cu_pointer>(memory);
    return result;
}

SIM_DRIVER_API cuMemFree_v2(mm_cu_pointer address) {
    return the_gpus() ? release(pointer_of(address)) : MM_CUDA_ERROR_NOT_INITIALIZED;
}

/* All there is to a pool is the device. */
SIM_DRIVER_API cuMemPoolCreate(mm_cu_pool *pool, const mm_cu_pool_kind *kind) {
    if (!the_gpus() || kind->type != MM_CU_MEMORY_PINNED || kind->location.type != MM_CU_LOCATION_DEVICE)
        return MM_CUDA_ERROR_INVALID_VALUE;
    *pool = reinterpret_cast<mm_cu_pool>(new int(kind->location.id));
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuMemPoolDestroy(mm_cu_pool pool) {
    delete reinterpret_cast<int *>(pool);
    return MM_CUDA_SUCCESS;
}

/* Memory that is made in a stream is there at once. */
SIM_DRIVER_API cuMemAllocFromPoolAsync(mm_cu_pointer *address, size_t bytes, mm_cu_pool pool, mm_cu_stream handle) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s) || *reinterpret_cast<int *>(pool) != device_of(handle))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    auto held = the_gpus()->lock();
    if (is_captured(handle))
        return MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    void *memory = nullptr;
    const mm_cu_result result = allocate(*the_gpus(), device_of(handle), bytes, true, &memory);
    *address = reinterpret_cast<mm_cu_pointer>(memory);
    return result;
}

/* It goes when the stream comes to it. */
SIM_DRIVER_API cuMemFreeAsync(mm_cu_pointer address, mm_cu_stream handle) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (is_captured(handle))
        return MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (mm_cu_result result = g.health(); result != MM_CUDA_SUCCESS)
        return result;
    block *found = block_of(pointer_of(address));
    if (!found || !found->in_stream)
        return MM_CUDA_ERROR_INVALID_VALUE;
    found->going = true;
    g.sim.call(s, [&g, address] { give_up(g, pointer_of(address)); });
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
    if (!current_context())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    auto held = the_gpus()->lock();
    return allocate(*the_gpus(), -1, bytes, false, memory);
}

SIM_DRIVER_API cuMemFreeHost(void *memory) {
    return the_gpus() ? release(memory) : MM_CUDA_ERROR_NOT_INITIALIZED;
}

SIM_DRIVER_API cuMemGetInfo_v2(size_t *available, size_t *total) {
    if (!current_context())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    *total = g.set.memory;
    *available = g.available(current_context()->device);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuPointerGetAttribute(void *value, int attribute, mm_cu_pointer address) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    auto held = the_gpus()->lock();
    int device, answer;
    if (!the_gpus()->sim.find(pointer_of(address), 1, &device))
        return MM_CUDA_ERROR_INVALID_VALUE;
    if (attribute == MM_CU_POINTER_MEMORY_TYPE)
        answer = device < 0 ? MM_CU_MEMORY_HOST : MM_CU_MEMORY_DEVICE;
    else if (attribute == MM_CU_POINTER_DEVICE_ORDINAL)
        answer = device;
    else
        return MM_CUDA_ERROR_INVALID_VALUE;
    std::memcpy(value, &answer, sizeof answer);
    return MM_CUDA_SUCCESS;
}

/* ---- Copies ---- */

/* Ordinary host memory has been read when the call returns: its contents are kept until the copy's turn comes. A real
 * capture may take it and read it at each replay; here it can't be captured. */
SIM_DRIVER_API cuMemcpyHtoDAsync_v2(mm_cu_pointer to, const void *from, size_t bytes, mm_cu_stream handle) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (mm_cu_result result = check(g, handle, pointer_of(to), bytes); result != MM_CUDA_SUCCESS)
        return result;
    if (is_known(g, from, bytes)) {
        do_or_keep(g, handle, s, [=](gpus &on, sim::stream where) { on.sim.copy(where, pointer_of(to), from, bytes); });
    } else if (is_captured(handle)) {
        return MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else {
        const char *begin = static_cast<const char *>(from);
        auto kept = std::make_shared<std::vector<char>>(begin, begin + bytes);
        g.sim.copy(s, pointer_of(to), kept->data(), bytes);
        g.sim.call(s, [kept] {});
    }
    return MM_CUDA_SUCCESS;
}

/* Ordinary host memory has been written when the call returns. */
SIM_DRIVER_API cuMemcpyDtoHAsync_v2(void *to, mm_cu_pointer from, size_t bytes, mm_cu_stream handle) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (mm_cu_result result = check(g, handle, pointer_of(from), bytes); result != MM_CUDA_SUCCESS)
        return result;
    if (is_captured(handle) && !is_known(g, to, bytes))
        return MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    do_or_keep(g, handle, s, [=](gpus &on, sim::stream where) { on.sim.copy(where, to, pointer_of(from), bytes); });
    if (is_known(g, to, bytes))
        return MM_CUDA_SUCCESS;
    return g.wait(held, [&g, s] { return g.sim.stream_done(s); });
}

SIM_DRIVER_API cuMemsetD8Async(mm_cu_pointer to, unsigned char value, size_t bytes, mm_cu_stream handle) {
    sim::stream s;
    if (!the_gpus() || !stream_of(*the_gpus(), handle, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    if (mm_cu_result result = check(g, handle, pointer_of(to), bytes); result != MM_CUDA_SUCCESS)
        return result;
    do_or_keep(g, handle, s, [=](gpus &on, sim::stream where) { on.sim.fill(where, pointer_of(to), value, bytes); });
    return MM_CUDA_SUCCESS;
}
