/* Kernels by name: those of src/kernels are part of this library, compiled for the simulator. */
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "sim/driver/gpus.h"

using namespace sim::driver;

namespace {

constexpr size_t shared_without_asking = 48 * 1024, most_shared = 227 * 1024;

std::map<std::string, function> functions; /* that were asked for; under the lock */

void *symbol_of(const char *file, int flags, const std::string &name) {
    void *library = dlopen(file, RTLD_NOW | flags);
    void *found = library ? dlsym(library, name.c_str()) : nullptr;
    if (library)
        dlclose(library);
    return found;
}

/* What MM_KERNEL defines for a kernel, from this library's own symbols, or from a library of more kernels. */
void *symbol(const std::string &name) {
    Dl_info own;
    const char *more = std::getenv("MEGAMOE_SIM_KERNELS");
    void *found =
        dladdr(reinterpret_cast<void *>(&symbol), &own) ? symbol_of(own.dli_fname, RTLD_NOLOAD, name) : nullptr;
    return found || !more ? found : symbol_of(more, RTLD_NODELETE, name);
}

bool find_kernel(const std::string &name, function *out) {
    void *kernel = symbol(name), *threads = symbol(name + "_threads"), *bytes = symbol(name + "_parameter_bytes");
    if (!kernel || !threads || !bytes)
        return false;
    *out = {name, reinterpret_cast<sim::kernel_function>(kernel), *static_cast<const unsigned *>(threads),
            *static_cast<const unsigned *>(bytes), shared_without_asking};
    return true;
}

/* In the first of the launch's dimensions; all others must be 1. */
bool one_dimension(const mm_cu_launch_config &config) {
    return config.grid_y == 1 && config.grid_z == 1 && config.block_y == 1 && config.block_z == 1;
}

bool is_refused(const function &kernel) {
    const char *name = std::getenv("MEGAMOE_SIM_NO_LAUNCH");
    return name && kernel.name == name;
}

/* False for an attribute that is not known. */
bool read_attributes(const mm_cu_launch_config &config, struct sim::launch *l) {
    l->cluster = 1;
    for (unsigned i = 0; i < config.attribute_count; i++) {
        const mm_cu_launch_attribute &attribute = config.attributes[i];
        if (attribute.id == MM_CU_LAUNCH_CLUSTER_DIMENSION)
            l->cluster = attribute.value.cluster.x;
        else if (attribute.id == MM_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION)
            l->programmatic = attribute.value.programmatic_serialization != 0;
        else
            return false;
    }
    return true;
}

} // namespace

SIM_DRIVER_API cuModuleLoadData(mm_cu_module *module, const void *) {
    static int any;
    *module = reinterpret_cast<mm_cu_module>(&any);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuModuleUnload(mm_cu_module) {
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuModuleGetFunction(mm_cu_function *out, mm_cu_module, const char *name) {
    if (!the_gpus())
        return MM_CUDA_ERROR_NOT_INITIALIZED;
    auto held = the_gpus()->lock();
    function found;
    if (!functions.count(name) && !find_kernel(name, &found))
        return MM_CUDA_ERROR_NOT_FOUND;
    function &kept = functions.emplace(name, found).first->second;
    *out = reinterpret_cast<mm_cu_function>(&kept);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuFuncSetAttribute(mm_cu_function handle, int attribute, int value) {
    if (attribute != MM_CU_MAX_DYNAMIC_SHARED_MEMORY || value < 0 || (size_t)value > most_shared)
        return MM_CUDA_ERROR_INVALID_VALUE;
    auto held = the_gpus()->lock();
    reinterpret_cast<function *>(handle)->shared_allowed = (size_t)value;
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuLaunchKernelEx(const mm_cu_launch_config *config, mm_cu_function handle, void **parameters,
                                void **extra) {
    gpus &g = *the_gpus();
    const function &kernel = *reinterpret_cast<const function *>(handle);
    sim::stream s;
    struct sim::launch l;
    if (!stream_of(g, config->stream, &s))
        return MM_CUDA_ERROR_INVALID_CONTEXT;
    if (extra || !one_dimension(*config) || !read_attributes(*config, &l) || config->grid_x == 0 || l.cluster == 0 ||
        config->grid_x % l.cluster != 0 || config->block_x == 0 || config->block_x > kernel.threads ||
        config->shared_bytes > kernel.shared_allowed)
        return MM_CUDA_ERROR_INVALID_VALUE;
    if (is_refused(kernel))
        return MM_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    l.kernel = kernel.kernel;
    l.name = kernel.name;
    l.parameters = parameters[0];
    l.parameter_bytes = kernel.parameter_bytes;
    l.grid = config->grid_x;
    l.threads = config->block_x;
    l.shared_bytes = config->shared_bytes;
    auto held = g.lock();
    if (mm_cu_result result = g.health(); result != MM_CUDA_SUCCESS)
        return result;
    const char *begin = static_cast<const char *>(l.parameters);
    const std::vector<char> copy(begin, begin + l.parameter_bytes);
    const int device = current_context()->device;
    const work launch = [l, copy, device](gpus &on, sim::stream where) {
        struct sim::launch now = l;
        now.parameters = copy.data();
        if (!on.breaks(device))
            on.sim.launch(where, now);
    };
    if (!keep_work(reinterpret_cast<stream *>(config->stream), launch))
        launch(g, s);
    return MM_CUDA_SUCCESS;
}

SIM_DRIVER_API cuTensorMapEncodeTiled(tensor_map *map, int type, uint32_t dims, void *base, const uint64_t *size,
                                      const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
                                      int interleave, int swizzle, int, int fill) {
    if (dims < 1 || dims > TENSOR_MAP_MAX_DIMS || interleave != MM_CU_INTERLEAVE_NONE || fill != MM_CU_FILL_ZERO ||
        (type != MM_CU_TENSOR_BF16 && type != MM_CU_TENSOR_F32) ||
        (swizzle != MM_CU_SWIZZLE_NONE && swizzle != MM_CU_SWIZZLE_128B))
        return MM_CUDA_ERROR_INVALID_VALUE;
    tensor_map_desc desc{};
    desc.base = base;
    desc.dims = dims;
    desc.element = type == MM_CU_TENSOR_BF16 ? TENSOR_BF16 : TENSOR_F32;
    desc.swizzle = swizzle == MM_CU_SWIZZLE_128B ? TENSOR_SWIZZLE_128B : TENSOR_SWIZZLE_NONE;
    for (uint32_t d = 0; d < dims; d++) {
        desc.size[d] = size[d];
        desc.box[d] = box[d];
        if (element_stride[d] != 1)
            return MM_CUDA_ERROR_INVALID_VALUE;
        if (d > 0)
            desc.stride[d - 1] = stride[d - 1];
    }
    std::string why;
    if (sim::encode_tensor_map(desc, map, &why))
        return MM_CUDA_SUCCESS;
    std::fprintf(stderr, "libcuda_sim: a tensor map is refused: %s\n", why.c_str());
    return MM_CUDA_ERROR_INVALID_VALUE;
}
