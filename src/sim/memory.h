/* Memory of the devices and of the host that devices can address: allocations with their shadow. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "sim/shadow.h"

namespace sim {

struct allocation {
    char *data = nullptr;
    size_t bytes = 0;
    int device = -1;
    region_shadow cells;
    void *mapping = nullptr;
    size_t mapping_bytes = 0;
};

class global_memory {
  public:
    explicit global_memory(shadow &s) : shade(s) {}
    ~global_memory();
    global_memory(const global_memory &) = delete;
    global_memory &operator=(const global_memory &) = delete;

    void *allocate(int device, size_t bytes);
    bool free(void *memory);
    /* The allocation that holds all these bytes, or nullptr. */
    allocation *find(const void *address, size_t bytes);
    /* The allocation that ends before or begins after an address, for messages; nullptr if there is none. */
    const allocation *nearest(const void *address) const;

  private:
    shadow &shade;
    std::map<uintptr_t, std::unique_ptr<allocation>> by_address;
    allocation *last = nullptr; /* found last */
};

} // namespace sim

#endif
