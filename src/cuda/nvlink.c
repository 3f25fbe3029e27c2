/* NVML, opened for one question; see nvlink.h. Its types are declared here, so that no NVIDIA header is needed. */
#include "cuda/nvlink.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef struct nvmlDevice_st *nvml_device;

enum { NVML_SUCCESS = 0, NVML_UNSIGNED_INT = 1 };
enum { NVML_COMMON_LINK_SPEED = 90, NVML_LINK_COUNT = 91 };

struct nvml_field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        double real;
        unsigned integer;
    } value;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*handle_by_bus_id)(const char *bus_id, nvml_device *device);
    int (*field_values)(nvml_device device, int count, struct nvml_field *fields);
};

static bool find_functions(struct nvml *nvml) {
    const struct {
        const char *symbol;
        size_t offset;
    } functions[] = {
        {"nvmlInit_v2", offsetof(struct nvml, init)},
        {"nvmlShutdown", offsetof(struct nvml, shutdown)},
        {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct nvml, handle_by_bus_id)},
        {"nvmlDeviceGetFieldValues", offsetof(struct nvml, field_values)},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(nvml->library, functions[i].symbol);
        if (found == NULL) {
            return false;
        }
        memcpy((char *)nvml + functions[i].offset, &found, sizeof found);
    }
    return true;
}

static bool is_told(const struct nvml_field *field) {
    return field->result == NVML_SUCCESS && field->type == NVML_UNSIGNED_INT;
}

static bool ask(const struct nvml *nvml, const char *bus_id, struct mm_nvlink *nvlink) {
    struct nvml_field fields[] = {{.field = NVML_LINK_COUNT}, {.field = NVML_COMMON_LINK_SPEED}};
    nvml_device device;
    if (nvml->handle_by_bus_id(bus_id, &device) != NVML_SUCCESS ||
        nvml->field_values(device, 2, fields) != NVML_SUCCESS || !is_told(&fields[0])) {
        return false;
    }
    nvlink->links = fields[0].value.integer;
    nvlink->megabytes_a_second = is_told(&fields[1]) ? fields[1].value.integer : 0;
    return true;
}

bool mm_nvlink_of(const char *bus_id, struct mm_nvlink *nvlink) {
    struct nvml nvml = {.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (nvml.library == NULL) {
        return false;
    }
    bool told = false;
    if (find_functions(&nvml) && nvml.init() == NVML_SUCCESS) {
        told = ask(&nvml, bus_id, nvlink);
        nvml.shutdown();
    }
    dlclose(nvml.library);
    return told;
}
