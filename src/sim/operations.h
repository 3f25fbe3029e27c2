/* What isa_sim.h calls: the operations that need the machine. Each finds the thread that makes it, and the source line
 * from its return address, so none of them is inlined. */
#ifndef SIM_OPERATIONS_H
#define SIM_OPERATIONS_H

#include <cmath>
#include <cstddef>
#include <cstdint>

struct tensor_map;

namespace sim {

/* Dynamic shared memory starts here, as on the machine, where the first KiB is the system's. */
const uint32_t SHARED_BASE = 1024;

enum shuffle_from { FROM_LANE, FROM_XOR, FROM_UP };
enum scope { GPU, WHOLE };
enum memory_order { RELAXED, RELEASE, ACQUIRE_RELEASE };

uint32_t thread_index();
uint32_t warp_index();
uint32_t cta_index();
uint32_t cta_count();
uint32_t cluster_rank();
bool elect_one();
uint32_t clock_cycles();
uint64_t clock_ns();
void sleep_ns(uint32_t ns);

void warp_sync();
uint32_t shuffle(uint32_t value, shuffle_from from, uint32_t which);
uint32_t ballot(bool vote);
void cta_sync();
void barrier_sync(uint32_t id, uint32_t threads);
void barrier_arrive(uint32_t id, uint32_t threads);
void cluster_sync();
void registers_give(unsigned registers);
void registers_take(unsigned registers);
void grid_launch_dependents();
void grid_dependency_wait();

void mbarrier_init(uint32_t bar, uint32_t count);
void mbarrier_init_fence();
void mbarrier_arrive(uint32_t bar);
void mbarrier_arrive_expect(uint32_t bar, uint32_t bytes);
void mbarrier_expect(uint32_t bar, uint32_t bytes);
void mbarrier_arrive_cluster(uint32_t bar, uint32_t rank);
bool mbarrier_test(uint32_t bar, uint32_t parity);

void tma_load(uint32_t destination, const tensor_map *map, uint32_t bar, const int32_t *coordinates, unsigned dims,
              uint16_t cluster_mask);
void tma_store(const tensor_map *map, uint32_t source, const int32_t *coordinates, unsigned dims);
void tma_reduce_add(const tensor_map *map, uint32_t source, const int32_t *coordinates, unsigned dims);
void tma_prefetch(const tensor_map *map, unsigned dims); /* dims 0: the map alone */
void bulk_load(uint32_t destination, const void *source, uint32_t bytes, uint32_t bar);
void bulk_store(void *destination, uint32_t source, uint32_t bytes);
void bulk_commit();
void bulk_wait(unsigned pending, bool reads_only);

void fence_async(bool global);
void fence(bool system);

void load(const void *address, void *value, size_t bytes);
void store(void *address, const void *value, size_t bytes);
uint32_t flag_load(const uint32_t *address, scope s, bool acquire);
void flag_store(uint32_t *address, uint32_t value, scope s);
void flag_reduce(uint32_t *address, uint32_t value, scope s, memory_order order);
uint32_t flag_fetch_add(uint32_t *address, uint32_t value, scope s, memory_order order);
uint32_t flag_compare_swap(uint32_t *address, uint32_t expected, uint32_t value);

void smem_load(uint32_t address, void *value, size_t bytes);
void smem_store(uint32_t address, const void *value, size_t bytes);
uint32_t smem_fetch_add(uint32_t address, uint32_t value);
void matrix_store(uint32_t row_address, const uint32_t (&value)[4], bool transposed);
void matrix_load(uint32_t row_address, uint32_t (&value)[4]);

void wgmma(float *d, unsigned columns, uint64_t a, uint64_t b, bool a_mn_major, bool b_mn_major, bool accumulate);
void wgmma_settle(const float *d, unsigned count);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned pending);

/* The machine's descriptor of a tile: bits 0-13 its address, 16-29 the leading and 32-45 the stride offset, in units of
 * 16 bytes; bits 62-63: the swizzle. */
inline uint64_t wgmma_descriptor(uint32_t tile, bool mn_major) {
    const uint64_t leading = mn_major ? 8192 / 16 : 1, stride = 1024 / 16;
    return (uint64_t)((tile & 0x3ffff) / 16) | leading << 16 | stride << 32 | 1ull << 62;
}

/* The bits of a float rounded to bf16, nearest even; any NaN becomes the machine's. */
inline uint32_t round_bf16(uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

inline float flush_subnormal(float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

} // namespace sim

#endif
