/* One wgmma: its operands in shared memory, and the arithmetic. */
#ifndef SIM_PRODUCT_H
#define SIM_PRODUCT_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace sim {

/* A matrix descriptor, read. Offsets are from the start of the CTA's shared memory window, SHARED_BASE included. */
struct operand {
    uint64_t descriptor = 0;
    bool mn_major = false;
    uint32_t width = 0; /* of M or N */

    uint32_t start() const { return (uint32_t)(descriptor & 0x3fff) * 16; }
    /* Where row `row` of M or N (K-major), or k `row` of the group of 64 `box` (MN-major) begins, before the swizzle.
     */
    uint32_t row_address(uint32_t row, uint32_t box) const {
        return start() + row / 8 * 1024 + row % 8 * 128 + box * 8192;
    }
};

inline uint32_t swizzled(uint32_t address) {
    return address ^ (address >> 7 & 7) << 4;
}

struct product {
    operand a, b;
    unsigned columns = 0;
    bool accumulate = false;
};

/* What is wrong with a descriptor; empty if nothing is. */
std::string operand_error(const operand &o, const char *name, size_t shared_bytes);

/* value[64 x columns] += or = a * b. `window` is what address 0 of shared memory would be. */
void multiply(const product &p, const char *window, float *value);

} // namespace sim

#endif
