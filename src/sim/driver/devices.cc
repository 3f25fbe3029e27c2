/* The driver itself, its devices, and contexts. */
#include <cstdio>
#include <vector>

#include "sim/driver/gpus.h"

using namespace sim::driver;

namespace {

constexpr int version = 13000;

/* Of the calling thread, current last. */
thread_local std::vector<const context *> contexts;

bool is_device(mm_cu_device device) {
    return the_gpus() && device >= 0 && device < (int)the_gpus()->set.machine.devices;
}

struct name_of_result {
    int result;
    const char *name, *text;
};

const name_of_result results[] = {
    {MM_CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {MM_CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "an argument is wrong"},
    {MM_CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "the simulated memory is used up"},
    {MM_CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called"},
    {MM_CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "there is no such device"},
    {MM_CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no context is current"},
    {MM_CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE",
     "an event that was not recorded, or memory that is gone"},
    {MM_CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "no kernel of this name was compiled in"},
    {MM_CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "the work is not done"},
    {MM_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch takes too much"},
    {MM_CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "simulated memory can't be shared between processes"},
    {MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "a stream that is captured can't do this"},
    {MM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "a stream took part in a capture and was not awaited in the end"},
    {MM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "what is captured waits for what is not"},
    {MM_CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "the event was recorded for a graph"},
    {MM_CUDA_ERROR_ILLEGAL_INSTRUCTION, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "the simulator found a fault"},
    {MM_CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "the device has broken, as it was asked to"},
};

const name_of_result *find(mm_cu_result result) {
    for (const name_of_result &each : results)
        if (each.result == result)
            return &each;
    return nullptr;
}

} // namespace

namespace sim::driver {

const context *current_context() {
    return contexts.empty() ? nullptr : contexts.back();
}

} // namespace sim::driver

/* By this symbol the library learns that no image is needed. */
SIM_DRIVER_API megamoe_kernels_by_name(void);
SIM_DRIVER_API megamoe_kernels_by_name(void) {
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuInit(unsigned flags) {
    return flags == 0 && make_the_gpus() ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

SIM_DRIVER_API cuDriverGetVersion(int *out) {
    *out = version;
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuGetErrorName(mm_cu_result result, const char **name) {
    const name_of_result *found = find(result);
    *name = found ? found->name : nullptr;
    return found ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

SIM_DRIVER_API cuGetErrorString(mm_cu_result result, const char **text) {
    const name_of_result *found = find(result);
    *text = found ? found->text : nullptr;
    return found ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_VALUE;
}

SIM_DRIVER_API cuDeviceGetCount(int *count) {
    *count = the_gpus() ? (int)the_gpus()->set.machine.devices : 0;
    return the_gpus() ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_NOT_INITIALIZED;
}

SIM_DRIVER_API cuDeviceGet(mm_cu_device *device, int ordinal) {
    *device = ordinal;
    return is_device(ordinal) ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
}

SIM_DRIVER_API cuDeviceGetByPCIBusId(mm_cu_device *device, const char *id) {
    unsigned number;
    if (std::sscanf(id, "simulated:%x", &number) != 1 || !is_device((int)number))
        return MM_CUDA_ERROR_INVALID_DEVICE;
    *device = (int)number;
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuDeviceGetName(char *name, int bytes, mm_cu_device device) {
    std::snprintf(name, (size_t)bytes, "simulated GPU");
    return is_device(device) ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
}

SIM_DRIVER_API cuDeviceGetPCIBusId(char *id, int bytes, mm_cu_device device) {
    std::snprintf(id, (size_t)bytes, "simulated:%02x", (unsigned)device);
    return is_device(device) ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
}

SIM_DRIVER_API cuDeviceTotalMem_v2(size_t *bytes, mm_cu_device device) {
    *bytes = is_device(device) ? the_gpus()->set.memory : 0;
    return is_device(device) ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
}

SIM_DRIVER_API cuDeviceGetAttribute(int *value, int attribute, mm_cu_device device) {
    if (!is_device(device))
        return MM_CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case MM_CU_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        return MM_CUDA_SUCCESS;
    case MM_CU_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        return MM_CUDA_SUCCESS;
    case MM_CU_MULTIPROCESSOR_COUNT:
        *value = (int)the_gpus()->set.machine.multiprocessors;
        return MM_CUDA_SUCCESS;
    default:
        return MM_CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_DRIVER_API cuDeviceGetP2PAttribute(int *value, int attribute, mm_cu_device from, mm_cu_device to) {
    *value = attribute != MM_CU_P2P_PERFORMANCE_RANK;
    return is_device(from) && is_device(to) && from != to ? MM_CUDA_SUCCESS : MM_CUDA_ERROR_INVALID_DEVICE;
}

/* ---- Contexts: a device has one, which is counted ---- */

SIM_DRIVER_API cuDevicePrimaryCtxRetain(mm_cu_context *out, mm_cu_device device) {
    if (!is_device(device))
        return MM_CUDA_ERROR_INVALID_DEVICE;
    gpus &g = *the_gpus();
    auto held = g.lock();
    g.rank_comes();
    *out = reinterpret_cast<mm_cu_context>(&g.primary[(size_t)device]);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuDevicePrimaryCtxRelease_v2(mm_cu_device device) {
    if (!is_device(device))
        return MM_CUDA_ERROR_INVALID_DEVICE;
    auto held = the_gpus()->lock();
    the_gpus()->rank_goes();
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuCtxPushCurrent_v2(mm_cu_context pushed) {
    if (!pushed)
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    contexts.push_back(reinterpret_cast<const context *>(pushed));
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuCtxPopCurrent_v2(mm_cu_context *popped) {
    if (contexts.empty())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    *popped = reinterpret_cast<mm_cu_context>(const_cast<context *>(contexts.back()));
    contexts.pop_back();
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuCtxGetDevice(mm_cu_device *device) {
    if (contexts.empty())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    *device = contexts.back()->device;
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuCtxSynchronize(void) {
    if (contexts.empty())
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    auto held = the_gpus()->lock();
    return the_gpus()->wait_for_device(held, contexts.back()->device);
}
