/* The machine operations' bodies for the simulator; what each one means is said in kernels/isa.cuh. Each is a call into
 * the simulator, which knows the thread that makes it; only arithmetic is done here. */
#ifndef SIM_ISA_SIM_H
#define SIM_ISA_SIM_H

#include <cmath>
#include <cstring>

#include "sim/operations.h"

/* ---- Who and where -------------------------------------------------------------------------------- */

MM_DEVICE uint32_t thread_index(void) {
    return sim::thread_index();
}
MM_DEVICE uint32_t warp_index(void) {
    return sim::warp_index();
}
MM_DEVICE uint32_t lane_index(void) {
    return sim::thread_index() % 32;
}
MM_DEVICE uint32_t cta_index(void) {
    return sim::cta_index();
}
MM_DEVICE uint32_t cta_count(void) {
    return sim::cta_count();
}
MM_DEVICE uint32_t cluster_rank(void) {
    return sim::cluster_rank();
}
/* Those of the simulator have no names: as many as there are CTAs. */
MM_DEVICE uint32_t multiprocessor_index(void) {
    return sim::cta_index();
}
MM_DEVICE smem_t smem_base(void) {
    return sim::SHARED_BASE;
}
MM_DEVICE bool elect_one(void) {
    return sim::elect_one();
}
MM_DEVICE uint32_t clock_cycles(void) {
    return sim::clock_cycles();
}
MM_DEVICE uint64_t clock_ns(void) {
    return sim::clock_ns();
}
MM_DEVICE void sleep_ns(uint32_t ns) {
    sim::sleep_ns(ns);
}

/* ---- Warps and CTAs ------------------------------------------------------------------------------- */

MM_DEVICE void warp_sync(void) {
    sim::warp_sync();
}
MM_DEVICE uint32_t warp_shuffle(uint32_t value, uint32_t lane) {
    return sim::shuffle(value, sim::FROM_LANE, lane);
}
MM_DEVICE uint32_t warp_shuffle_xor(uint32_t value, uint32_t mask) {
    return sim::shuffle(value, sim::FROM_XOR, mask);
}
MM_DEVICE uint32_t warp_shuffle_up(uint32_t value, uint32_t delta) {
    return sim::shuffle(value, sim::FROM_UP, delta);
}
MM_DEVICE float warp_shuffle_xor(float value, uint32_t mask) {
    return bits_float(warp_shuffle_xor(float_bits(value), mask));
}
MM_DEVICE uint32_t warp_ballot(bool vote) {
    return sim::ballot(vote);
}
MM_DEVICE void cta_sync(void) {
    sim::cta_sync();
}
MM_DEVICE void barrier_sync(uint32_t id, uint32_t threads) {
    sim::barrier_sync(id, threads);
}
MM_DEVICE void barrier_arrive(uint32_t id, uint32_t threads) {
    sim::barrier_arrive(id, threads);
}
MM_DEVICE void cluster_sync(void) {
    sim::cluster_sync();
}
template <int registers> MM_DEVICE void registers_give(void) {
    sim::registers_give(registers);
}
template <int registers> MM_DEVICE void registers_take(void) {
    sim::registers_take(registers);
}

MM_DEVICE void grid_launch_dependents(void) {
    sim::grid_launch_dependents();
}
MM_DEVICE void grid_dependency_wait(void) {
    sim::grid_dependency_wait();
}

/* ---- mbarrier ------------------------------------------------------------------------------------- */

MM_DEVICE void mbarrier_init(smem_t bar, uint32_t count) {
    sim::mbarrier_init(bar, count);
}
MM_DEVICE void mbarrier_init_fence(void) {
    sim::mbarrier_init_fence();
}
MM_DEVICE void mbarrier_arrive(smem_t bar) {
    sim::mbarrier_arrive(bar);
}
MM_DEVICE void mbarrier_arrive_expect(smem_t bar, uint32_t bytes) {
    sim::mbarrier_arrive_expect(bar, bytes);
}
MM_DEVICE void mbarrier_expect(smem_t bar, uint32_t bytes) {
    sim::mbarrier_expect(bar, bytes);
}
MM_DEVICE void mbarrier_arrive_cluster(smem_t bar, uint32_t rank) {
    sim::mbarrier_arrive_cluster(bar, rank);
}
MM_DEVICE bool mbarrier_test(smem_t bar, uint32_t parity) {
    return sim::mbarrier_test(bar, parity);
}

/* ---- Tensor copies (TMA) and bulk copies ---------------------------------------------------------- */

template <int dims>
MM_DEVICE void tma_load(smem_t destination, const tensor_map *map, smem_t bar, const int32_t (&coordinates)[dims],
                        uint16_t cluster_mask) {
    static_assert(dims >= 2 && dims <= 5, "tensor maps of 2 to 5 dimensions");
    sim::tma_load(destination, map, bar, coordinates, dims, cluster_mask);
}
template <int dims> MM_DEVICE void tma_store(const tensor_map *map, smem_t source, const int32_t (&coordinates)[dims]) {
    static_assert(dims == 2 || dims == 3, "tensor stores of 2 or 3 dimensions");
    sim::tma_store(map, source, coordinates, dims);
}
template <int dims>
MM_DEVICE void tma_reduce_add(const tensor_map *map, smem_t source, const int32_t (&coordinates)[dims]) {
    static_assert(dims == 2 || dims == 3, "tensor reductions of 2 or 3 dimensions");
    sim::tma_reduce_add(map, source, coordinates, dims);
}
template <int dims> MM_DEVICE void tma_prefetch(const tensor_map *map, const int32_t (&coordinates)[dims]) {
    static_assert(dims == 2, "prefetches of 2 dimensions");
    (void)coordinates;
    sim::tma_prefetch(map, dims);
}
MM_DEVICE void tma_prefetch_map(const tensor_map *map) {
    sim::tma_prefetch(map, 0);
}
MM_DEVICE void bulk_load(smem_t destination, const void *source, uint32_t bytes, smem_t bar) {
    sim::bulk_load(destination, source, bytes, bar);
}
MM_DEVICE void bulk_store(void *destination, smem_t source, uint32_t bytes) {
    sim::bulk_store(destination, source, bytes);
}
MM_DEVICE void bulk_commit(void) {
    sim::bulk_commit();
}
template <int pending> MM_DEVICE void bulk_wait_read(void) {
    sim::bulk_wait(pending, true);
}
template <int pending> MM_DEVICE void bulk_wait(void) {
    sim::bulk_wait(pending, false);
}

/* ---- Fences --------------------------------------------------------------------------------------- */

MM_DEVICE void fence_async_shared(void) {
    sim::fence_async(false);
}
MM_DEVICE void fence_async(void) {
    sim::fence_async(true);
}
MM_DEVICE void fence_gpu(void) {
    sim::fence(false);
}
MM_DEVICE void fence_system(void) {
    sim::fence(true);
}
MM_DEVICE void fence_sc_system(void) {
    sim::fence(true);
}

/* ---- Global memory -------------------------------------------------------------------------------- */

MM_DEVICE uint32_t load_u16(const void *address) {
    uint16_t value;
    sim::load(address, &value, sizeof value);
    return value;
}
MM_DEVICE uint32_t load_u32(const void *address) {
    uint32_t value;
    sim::load(address, &value, sizeof value);
    return value;
}
MM_DEVICE uint64_t load_u64(const void *address) {
    uint64_t value;
    sim::load(address, &value, sizeof value);
    return value;
}
MM_DEVICE u32x4 load_u32x4(const void *address) {
    u32x4 value;
    sim::load(address, &value, sizeof value);
    return value;
}
MM_DEVICE u32x4 load_u32x4_l2(const void *address) {
    return load_u32x4(address);
}
MM_DEVICE uint32_t load_u32_l2(const void *address) {
    return load_u32(address);
}
MM_DEVICE void store_u16(void *address, uint32_t value) {
    const uint16_t half = (uint16_t)value;
    sim::store(address, &half, sizeof half);
}
MM_DEVICE void store_u32(void *address, uint32_t value) {
    sim::store(address, &value, sizeof value);
}
MM_DEVICE void store_u64(void *address, uint64_t value) {
    sim::store(address, &value, sizeof value);
}
MM_DEVICE void store_u32x4(void *address, u32x4 value) {
    sim::store(address, &value, sizeof value);
}
MM_DEVICE uint32_t load_acquire_gpu(const uint32_t *address) {
    return sim::flag_load(address, sim::GPU, true);
}
MM_DEVICE uint32_t load_acquire_system(const uint32_t *address) {
    return sim::flag_load(address, sim::WHOLE, true);
}
MM_DEVICE uint32_t load_relaxed_system(const uint32_t *address) {
    return sim::flag_load(address, sim::WHOLE, false);
}
MM_DEVICE void store_release_gpu(uint32_t *address, uint32_t value) {
    sim::flag_store(address, value, sim::GPU);
}
MM_DEVICE void store_release_system(uint32_t *address, uint32_t value) {
    sim::flag_store(address, value, sim::WHOLE);
}
MM_DEVICE void add_relaxed_gpu(uint32_t *address, uint32_t value) {
    sim::flag_reduce(address, value, sim::GPU, sim::RELAXED);
}
MM_DEVICE void add_release_gpu(uint32_t *address, uint32_t value) {
    sim::flag_reduce(address, value, sim::GPU, sim::RELEASE);
}
MM_DEVICE void add_release_system(uint32_t *address, uint32_t value) {
    sim::flag_reduce(address, value, sim::WHOLE, sim::RELEASE);
}
MM_DEVICE uint32_t fetch_add_relaxed_gpu(uint32_t *address, uint32_t value) {
    return sim::flag_fetch_add(address, value, sim::GPU, sim::RELAXED);
}
MM_DEVICE uint32_t fetch_add_acq_rel_gpu(uint32_t *address, uint32_t value) {
    return sim::flag_fetch_add(address, value, sim::GPU, sim::ACQUIRE_RELEASE);
}
MM_DEVICE uint32_t compare_swap_system(uint32_t *address, uint32_t expected, uint32_t value) {
    return sim::flag_compare_swap(address, expected, value);
}

/* ---- Shared memory -------------------------------------------------------------------------------- */

MM_DEVICE uint32_t smem_load_u32(smem_t address) {
    uint32_t value;
    sim::smem_load(address, &value, sizeof value);
    return value;
}
MM_DEVICE u32x4 smem_load_u32x4(smem_t address) {
    u32x4 value;
    sim::smem_load(address, &value, sizeof value);
    return value;
}
MM_DEVICE void smem_store_u32(smem_t address, uint32_t value) {
    sim::smem_store(address, &value, sizeof value);
}
MM_DEVICE void smem_store_u64(smem_t address, uint32_t low, uint32_t high) {
    const uint32_t value[2] = {low, high};
    sim::smem_store(address, value, sizeof value);
}
MM_DEVICE void smem_store_u32x4(smem_t address, u32x4 value) {
    sim::smem_store(address, &value, sizeof value);
}
MM_DEVICE uint32_t smem_fetch_add(smem_t address, uint32_t value) {
    return sim::smem_fetch_add(address, value);
}
MM_DEVICE void matrix_store(smem_t row_address, const uint32_t (&value)[4]) {
    sim::matrix_store(row_address, value, false);
}
MM_DEVICE void matrix_store_transposed(smem_t row_address, const uint32_t (&value)[4]) {
    sim::matrix_store(row_address, value, true);
}
MM_DEVICE void matrix_load(smem_t row_address, uint32_t (&value)[4]) {
    sim::matrix_load(row_address, value);
}

/* ---- wgmma ---------------------------------------------------------------------------------------- */

template <operand_major major> MM_DEVICE wgmma_operand wgmma_operand_at(smem_t tile) {
    return sim::wgmma_descriptor(tile, major == MN_MAJOR);
}
MM_DEVICE wgmma_operand wgmma_operand_add(wgmma_operand operand, uint32_t bytes) {
    return operand + bytes / 16;
}
template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[64], wgmma_operand a, wgmma_operand b, int accumulate) {
    sim::wgmma(d, 128, a, b, a_major == MN_MAJOR, b_major == MN_MAJOR, accumulate != 0);
}
template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[96], wgmma_operand a, wgmma_operand b, int accumulate) {
    sim::wgmma(d, 192, a, b, a_major == MN_MAJOR, b_major == MN_MAJOR, accumulate != 0);
}
template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[128], wgmma_operand a, wgmma_operand b, int accumulate) {
    sim::wgmma(d, 256, a, b, a_major == MN_MAJOR, b_major == MN_MAJOR, accumulate != 0);
}
template <int count> MM_DEVICE void wgmma_settle(float (&d)[count]) {
    sim::wgmma_settle(d, count);
}
MM_DEVICE void wgmma_fence(void) {
    sim::wgmma_fence();
}
MM_DEVICE void wgmma_commit(void) {
    sim::wgmma_commit();
}
template <int pending> MM_DEVICE void wgmma_wait(void) {
    sim::wgmma_wait(pending);
}

/* ---- Arithmetic ----------------------------------------------------------------------------------- */

MM_DEVICE uint32_t count_bits(uint32_t bits) {
    return (uint32_t)__builtin_popcount(bits);
}
MM_DEVICE uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
MM_DEVICE float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
MM_DEVICE uint32_t pack_bf16(float low, float high) {
    return sim::round_bf16(float_bits(low)) | sim::round_bf16(float_bits(high)) << 16;
}
MM_DEVICE float bf16_low(uint32_t pair) {
    return bits_float(pair << 16);
}
MM_DEVICE float bf16_high(uint32_t pair) {
    return bits_float(pair & 0xffff0000u);
}

/* The exact results rounded, which lie within what the machine's approximations promise. */
MM_DEVICE float exp2_approx(float x) {
    return sim::flush_subnormal(std::exp2(sim::flush_subnormal(x)));
}
MM_DEVICE float reciprocal_approx(float x) {
    return sim::flush_subnormal(1.0f / sim::flush_subnormal(x));
}

#endif
