/* The GPU; see gpu_machine.h. */
#include "gpu_machine.h"

#include <fstream>
#include <iterator>

extern "C" {
#include "cuda/kernel.h"
}

namespace conformance {
namespace {

std::string text_of(mmoe_status status) {
    return status == MMOE_OK ? "" : mmoe_last_error();
}

mm_cu_pointer device_address(const void *address) {
    return reinterpret_cast<mm_cu_pointer>(address);
}

} // namespace

std::string gpu_machine::open(const std::vector<std::string> &cubins) {
    mm_device_wish wish = {};
    wish.current = true;
    mmoe_status status = mm_driver_open(&gpu_.driver, MM_DRIVER_VERSION_NEEDED);
    if (status == MMOE_OK)
        status = mm_device_choose(&gpu_.driver, &wish, &gpu_.device);
    if (status == MMOE_OK)
        status = MM_CU(&gpu_.driver, cuDevicePrimaryCtxRetain, "opening the GPU", &gpu_.context, gpu_.device.ordinal);
    if (status == MMOE_OK)
        status = MM_CU(&gpu_.driver, cuCtxPushCurrent, "opening the GPU", gpu_.context);
    if (status != MMOE_OK)
        return text_of(status);
    for (const std::string &cubin : cubins) {
        std::string wrong = load(cubin);
        if (!wrong.empty())
            return wrong;
    }
    gpu_.modules = modules_.data();
    gpu_.module_count = (int)modules_.size();
    return "";
}

std::string gpu_machine::load(const std::string &cubin) {
    std::ifstream file(cubin, std::ios::binary);
    const std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (image.empty())
        return cubin + ": cannot be read, or is empty";
    mm_cu_module module;
    const std::string doing = "loading " + cubin;
    const mmoe_status status = MM_CU(&gpu_.driver, cuModuleLoadData, doing.c_str(), &module, image.data());
    if (status == MMOE_OK)
        modules_.push_back(module);
    return text_of(status);
}

gpu_machine::~gpu_machine() {
    for (mm_cu_module module : modules_)
        gpu_.driver.cuModuleUnload(module);
    if (gpu_.context != nullptr)
        gpu_.driver.cuDevicePrimaryCtxRelease(gpu_.device.ordinal);
    mm_driver_close(&gpu_.driver);
}

std::string gpu_machine::describe() const {
    char version[MM_DRIVER_VERSION_BYTES];
    mm_driver_version_text(gpu_.driver.version, version);
    return std::string(gpu_.device.name) + ", driver for CUDA " + version;
}

std::string gpu_machine::allocate(size_t bytes, void **address) {
    mm_cu_pointer pointer = 0;
    const mmoe_status status = MM_CU(&gpu_.driver, cuMemAlloc, "allocating a buffer", &pointer, bytes);
    *address = reinterpret_cast<void *>(pointer);
    return text_of(status);
}

void gpu_machine::release(void *address) {
    gpu_.driver.cuMemFree(device_address(address));
}

std::string gpu_machine::write(void *to, const void *from, size_t bytes) {
    return text_of(
        MM_CU(&gpu_.driver, cuMemcpyHtoDAsync, "writing a buffer", device_address(to), from, bytes, nullptr));
}

std::string gpu_machine::read(void *to, const void *from, size_t bytes) {
    mmoe_status status =
        MM_CU(&gpu_.driver, cuMemcpyDtoHAsync, "reading a buffer", to, device_address(from), bytes, nullptr);
    if (status == MMOE_OK)
        status = MM_CU(&gpu_.driver, cuStreamSynchronize, "reading a buffer", nullptr);
    return text_of(status);
}

std::string gpu_machine::encode(const tensor_map_desc &desc, tensor_map *map) {
    return text_of(mm_tensor_map_encode(&gpu_, &desc, "a case", map));
}

std::string gpu_machine::launch(const test_case &c, const parameters &p) {
    mm_kernel kernel;
    mm_launch shape = {};
    shape.ctas = c.ctas;
    shape.threads = c.threads;
    shape.cluster = c.cluster;
    mmoe_status status = mm_kernel_find(&gpu_, c.kernel.c_str(), c.shared_bytes, &kernel);
    shape.overlapping = c.launches > 1;
    for (uint32_t i = 0; i < c.launches && status == MMOE_OK; i++)
        status = mm_kernel_launch(&gpu_, &kernel, &shape, &p);
    if (status == MMOE_OK)
        status = MM_CU(&gpu_.driver, cuStreamSynchronize, "waiting for the kernel", nullptr);
    return text_of(status);
}

bool gpu_machine::usable() {
    return gpu_.driver.cuStreamSynchronize(nullptr) == MM_CUDA_SUCCESS;
}

} // namespace conformance
