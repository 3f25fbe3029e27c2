/* Memory that several devices map: made, passed on by a descriptor, mapped at a reserved address.
 *
 * A real address is reserved before anybody knows what will be mapped there. Here memory has one address for all
 * devices, so an address is reserved for what the same thread has made or imported last, and nothing else can be mapped
 * there. A mapping belongs to the device of the current context and gives access to that device alone. A descriptor
 * says where in this process the memory is, and does not keep it alive. */
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "sim/driver/gpus.h"

using namespace sim::driver;

namespace {

constexpr size_t granularity = 65536;

struct block {
    void *memory;
    size_t bytes;
    int device;
    uint64_t number; /* in descriptors */
    int handles;
    std::map<int, bool> mappings; /* of each device: whether it may access */
};

/* What a descriptor's file holds. */
struct record {
    char magic[16];
    pid_t process;
    uint64_t number;
};
constexpr char magic[16] = "simulated GPU";

/* Under the lock. */
std::map<uint64_t, block> blocks;         /* by number */
std::map<mm_cu_memory, uint64_t> handles; /* to numbers of blocks */
std::multimap<mm_cu_pointer, size_t> reservations;
mm_cu_memory last_handle = 0;

thread_local mm_cu_memory made_last = 0; /* by this thread; may have been released */

block *find_handle(mm_cu_memory handle) {
    auto found = handles.find(handle);
    return found == handles.end() ? nullptr : &blocks.at(found->second);
}

block *find_address(const void *address) {
    for (auto &entry : blocks) {
        block &b = entry.second;
        if (address >= b.memory && address < static_cast<char *>(b.memory) + b.bytes)
            return &b;
    }
    return nullptr;
}

/* The one that is mapped just there by a device. */
block *find_mapping(mm_cu_pointer address, size_t bytes, int device) {
    block *found = find_address(reinterpret_cast<void *>(address));
    const bool is_there = found && found->memory == reinterpret_cast<void *>(address) && found->bytes == bytes;
    return is_there && found->mappings.count(device) ? found : nullptr;
}

mm_cu_memory add_handle(block &b) {
    b.handles++;
    handles[++last_handle] = b.number;
    made_last = last_handle;
    return last_handle;
}

void drop_unused(gpus &g, block &b) {
    if (b.handles > 0 || !b.mappings.empty())
        return;
    g.free(b.memory, b.device, b.bytes, false);
    blocks.erase(b.number);
}

bool is_possible(const gpus &g, const mm_cu_memory_kind &kind) {
    return kind.type == MM_CU_MEMORY_PINNED && kind.handle_types == MM_CU_HANDLE_DESCRIPTOR &&
           kind.location.type == MM_CU_LOCATION_DEVICE && kind.location.id >= 0 &&
           kind.location.id < (int)g.set.machine.devices;
}

mm_cu_result create(gpus &g, int device, size_t bytes, mm_cu_memory *handle) {
    void *memory = g.allocate(device, bytes, false);
    if (!memory)
        return MM_CUDA_ERROR_OUT_OF_MEMORY;
    static uint64_t last_number = 0;
    const uint64_t number = ++last_number;
    *handle = add_handle(blocks[number] = block{memory, bytes, device, number, 0, {}});
    return MM_CUDA_SUCCESS;
}

} // namespace

namespace sim::driver {

bool may_access(const void *address, int device) {
    const block *found = find_address(address);
    if (!found)
        return true;
    auto mapping = found->mappings.find(device);
    return mapping != found->mappings.end() && mapping->second;
}

} // namespace sim::driver

SIM_DRIVER_API cuMemGetAllocationGranularity(size_t *bytes, const mm_cu_memory_kind *kind, int option) {
    *bytes = granularity;
    return the_gpus() && is_possible(*the_gpus(), *kind) && option == MM_CU_GRANULARITY_MINIMUM
               ? MM_CUDA_SUCCESS
               : MM_CUDA_ERROR_INVALID_VALUE;
}

SIM_DRIVER_API cuMemCreate(mm_cu_memory *handle, size_t bytes, const mm_cu_memory_kind *kind,
                           unsigned long long flags) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    if (!is_possible(*the_gpus(), *kind) || bytes == 0 || bytes % granularity != 0 || flags != 0)
        return MM_CUDA_ERROR_INVALID_VALUE;
    auto held = the_gpus()->lock();
    return create(*the_gpus(), kind->location.id, bytes, handle);
}

SIM_DRIVER_API cuMemRelease(mm_cu_memory handle) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    auto held = the_gpus()->lock();
    block *released = find_handle(handle);
    if (!released)
        return MM_CUDA_ERROR_INVALID_VALUE;
    handles.erase(handle);
    released->handles--;
    drop_unused(*the_gpus(), *released);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuMemExportToShareableHandle(void *descriptor, mm_cu_memory handle, int handle_type,
                                            unsigned long long flags) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    auto held = the_gpus()->lock();
    const block *exported = find_handle(handle);
    if (!exported || handle_type != MM_CU_HANDLE_DESCRIPTOR || flags != 0)
        return MM_CUDA_ERROR_INVALID_VALUE;
    record said = {};
    std::memcpy(said.magic, magic, sizeof magic);
    said.process = getpid();
    said.number = exported->number;
    const int file = memfd_create("simulated GPU memory", MFD_CLOEXEC);
    if (file < 0)
        return MM_CUDA_ERROR_UNKNOWN;
    if (write(file, &said, sizeof said) != (ssize_t)sizeof said) {
        close(file);
        return MM_CUDA_ERROR_UNKNOWN;
    }
    std::memcpy(descriptor, &file, sizeof file);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuMemImportFromShareableHandle(mm_cu_memory *handle, void *descriptor, int handle_type) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    record said = {};
    const int file = (int)reinterpret_cast<intptr_t>(descriptor);
    if (handle_type != MM_CU_HANDLE_DESCRIPTOR || pread(file, &said, sizeof said, 0) != (ssize_t)sizeof said ||
        std::memcmp(said.magic, magic, sizeof magic) != 0)
        return MM_CUDA_ERROR_INVALID_VALUE;
    if (said.process != getpid())
        return MM_CUDA_ERROR_NOT_SUPPORTED;
    auto held = the_gpus()->lock();
    auto imported = blocks.find(said.number);
    if (imported == blocks.end())
        return MM_CUDA_ERROR_INVALID_HANDLE;
    *handle = add_handle(imported->second);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuMemAddressReserve(mm_cu_pointer *address, size_t bytes, size_t, mm_cu_pointer wished,
                                   unsigned long long flags) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    auto held = the_gpus()->lock();
    const block *meant = find_handle(made_last);
    if (!meant || meant->bytes != bytes || wished != 0 || flags != 0)
        return MM_CUDA_ERROR_INVALID_VALUE;
    *address = reinterpret_cast<mm_cu_pointer>(meant->memory);
    reservations.emplace(*address, bytes);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuMemAddressFree(mm_cu_pointer address, size_t bytes) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    auto held = the_gpus()->lock();
    auto reserved = reservations.find(address);
    if (reserved == reservations.end() || reserved->second != bytes)
        return MM_CUDA_ERROR_INVALID_VALUE;
    reservations.erase(reserved);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuMemMap(mm_cu_pointer address, size_t bytes, size_t offset, mm_cu_memory handle,
                        unsigned long long flags) {
    if (!current_context())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    auto held = the_gpus()->lock();
    block *mapped = find_handle(handle);
    if (!mapped || mapped->memory != reinterpret_cast<void *>(address) || mapped->bytes != bytes || offset != 0 ||
        flags != 0 || !reservations.count(address))
        return MM_CUDA_ERROR_INVALID_VALUE;
    return mapped->mappings.emplace(current_context()->device, false).second ? MM_CUDA_SUCCESS
                                                                             : MM_CUDA_ERROR_INVALID_VALUE;
}

SIM_DRIVER_API cuMemSetAccess(mm_cu_pointer address, size_t bytes, const mm_cu_memory_access *access, size_t count) {
    if (!current_context())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    auto held = the_gpus()->lock();
    const int device = current_context()->device;
    block *mapped = find_mapping(address, bytes, device);
    if (!mapped || count != 1 || access->location.type != MM_CU_LOCATION_DEVICE || access->location.id != device ||
        access->flags != MM_CU_ACCESS_READ_WRITE)
        return MM_CUDA_ERROR_INVALID_VALUE;
    mapped->mappings[device] = true;
    return MM_CUDA_SUCCESS;
}

/* Waits for what the device still does, since it may do it there. */
SIM_DRIVER_API cuMemUnmap(mm_cu_pointer address, size_t bytes) {
    if (!current_context())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    gpus &g = *the_gpus();
    auto held = g.lock();
    const int device = current_context()->device;
    block *mapped = find_mapping(address, bytes, device);
    if (!mapped)
        return MM_CUDA_ERROR_INVALID_VALUE;
    if (mm_cu_result result = g.wait_for_device(held, device); result != MM_CUDA_SUCCESS)
        return result;
    mapped->mappings.erase(device);
    drop_unused(g, *mapped);
    return MM_CUDA_SUCCESS;
}
