/* bf16 products summed in fp32, k after k. */
#include "sim/product.h"

#include <cstring>

#include "cpu/clones.h"
#include "sim/operations.h"
#include "sim/report.h"

namespace sim {

namespace {

const uint32_t DEPTH = 16, ROWS = 64, MOST_COLUMNS = 256;

float widened(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* out[k * stride + i] = element i of M or N at k. */
void read_operand(const operand &o, const char *window, float *out, uint32_t stride) {
    uint16_t piece[8];
    if (o.mn_major) {
        for (uint32_t k = 0; k < DEPTH; k++) {
            for (uint32_t i = 0; i < o.width; i += 8) {
                memcpy(piece, window + swizzled(o.row_address(k, i / 64) + i % 64 * 2), sizeof piece);
                for (uint32_t j = 0; j < 8; j++)
                    out[k * stride + i + j] = widened(piece[j]);
            }
        }
        return;
    }
    for (uint32_t i = 0; i < o.width; i++) {
        for (uint32_t k = 0; k < DEPTH; k += 8) {
            memcpy(piece, window + swizzled(o.row_address(i, 0) + k * 2), sizeof piece);
            for (uint32_t j = 0; j < 8; j++)
                out[(k + j) * stride + i] = widened(piece[j]);
        }
    }
}

/* As many columns as are summed at a time, in registers. */
typedef float strip __attribute__((vector_size(64)));
const uint32_t STRIP = sizeof(strip) / sizeof(float), STRIPS = 4;

/* a[k][row], b[k][column], both with fixed strides. */
MM_CLONES void add_products(const float *a, const float *b, float *value, uint32_t columns) {
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t first = 0; first < columns; first += STRIP * STRIPS) {
            float *out = value + row * columns + first;
            strip sum[STRIPS];
            memcpy(sum, out, sizeof sum);
            for (uint32_t k = 0; k < DEPTH; k++) {
                strip with[STRIPS];
                memcpy(with, b + k * MOST_COLUMNS + first, sizeof with);
                for (uint32_t i = 0; i < STRIPS; i++)
                    sum[i] += a[k * ROWS + row] * with[i];
            }
            memcpy(out, sum, sizeof sum);
        }
    }
}

} // namespace

std::string operand_error(const operand &o, const char *name, size_t shared_bytes) {
    const uint64_t d = o.descriptor;
    const uint32_t leading = (uint32_t)(d >> 16 & 0x3fff) * 16, stride = (uint32_t)(d >> 32 & 0x3fff) * 16;
    if (d >> 62 != 1)
        return format_text("%s's descriptor has layout %u, expected 1, the 128-byte swizzle", name,
                           (unsigned)(d >> 62));
    if (stride != 1024)
        return format_text("%s's descriptor has stride offset %u, expected 1024", name, stride);
    if (o.mn_major && leading != 8192)
        return format_text("%s is MN-major and its descriptor has leading offset %u, expected 8192", name, leading);
    if (!o.mn_major && leading != 16)
        return format_text("%s is K-major and its descriptor was made with leading offset %u, as for MN-major", name,
                           leading);
    if ((o.start() & 0x380) != 0 || (d >> 49 & 7) != 0)
        return format_text("%s begins at 0x%x: its tile is not 1024-byte aligned", name, o.start());
    if (o.start() % (o.mn_major ? 1024 : 32) != 0)
        return format_text("%s begins at 0x%x, expected a multiple of %d", name, o.start(), o.mn_major ? 1024 : 32);
    const uint32_t last =
        o.mn_major ? o.row_address(DEPTH - 1, o.width / 64 - 1) + 128 : (o.row_address(o.width - 1, 0) & ~127u) + 128;
    if (o.start() < SHARED_BASE || last > SHARED_BASE + shared_bytes)
        return format_text("%s, from 0x%x to 0x%x, is not inside the %zu bytes of shared memory from 0x%x on", name,
                           o.start(), last, shared_bytes, SHARED_BASE);
    return "";
}

void multiply(const product &p, const char *window, float *value) {
    static_assert(STRIP * STRIPS == 64, "64 columns at a time: they come in 128, 192 and 256");
    float a[DEPTH * ROWS], b[DEPTH * MOST_COLUMNS];
    read_operand(p.a, window, a, ROWS);
    read_operand(p.b, window, b, MOST_COLUMNS);
    if (!p.accumulate)
        memset(value, 0, sizeof *value * ROWS * p.columns);
    add_products(a, b, value, p.columns);
}

} // namespace sim
