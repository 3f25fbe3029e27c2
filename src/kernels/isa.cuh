/* The machine operations that kernels are written in, for sm_90a.
 *
 * A kernel is plain C on top of these functions: it holds no inline assembly and includes no CUDA header. Every
 * function has two bodies with one meaning: PTX (isa_ptx.cuh), and the simulator's (sim/isa_sim.h), which runs the same
 * kernel source on a CPU, late, out of order and checked.
 *
 * Rules for kernels:
 * - Memory that another thread, another CTA, another GPU or the copy engine also touches is read and written through
 *   the functions below, never through a bare pointer. Registers and a thread's own arrays are plain C.
 * - Shared memory is named by smem_t, a byte address inside the CTA's window.
 * - Nothing in a kernel prints, asserts or calls out: that would serialise every wgmma.
 *
 * Words: "aligned" operations are executed by all threads of the warp (or warpgroup) together. The "generic proxy" is
 * ordinary loads and stores; the "async proxy" is TMA, bulk copies and wgmma reading shared memory. What one proxy
 * wrote is seen by the other only after the fence named for it. */
#ifndef MM_KERNELS_ISA_CUH
#define MM_KERNELS_ISA_CUH

#include <stdint.h>

#include "kernels/tensor_map_desc.h"

#if defined(__CUDACC__)
#define MM_DEVICE __device__ __forceinline__
/* A kernel: `name(const struct type p)`, at most `threads` a CTA, one CTA an SM. */
#define MM_KERNEL(name, type, threads)                                                                                 \
    extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ type p)
#else
/* Inlined, so that a report can name the lines that a line was inlined into. */
#define MM_DEVICE static inline __attribute__((always_inline))
/* The simulator finds a kernel by its name: the function, and what it must know to launch it. */
#define MM_KERNEL(name, type, threads)                                                                                 \
    extern "C" const unsigned name##_threads, name##_parameter_bytes;                                                  \
    const unsigned name##_threads = (threads), name##_parameter_bytes = sizeof(struct type);                           \
    extern "C" void name(const struct type &p);                                                                        \
    void name(const struct type &p)
#endif

typedef uint32_t smem_t;
typedef uint16_t bf16_t;

struct u32x4 {
    uint32_t x, y, z, w;
};

/* ---- Who and where -------------------------------------------------------------------------------- */

MM_DEVICE uint32_t thread_index(void); /* in the CTA */
MM_DEVICE uint32_t warp_index(void);   /* aligned: thread_index() / 32, known to the compiler as one value a warp */
MM_DEVICE uint32_t lane_index(void);   /* thread_index() % 32 */
MM_DEVICE uint32_t cta_index(void);    /* in the grid, one dimension */
MM_DEVICE uint32_t cta_count(void);
MM_DEVICE uint32_t cluster_rank(void);         /* of this CTA in its cluster; 0 without clusters */
MM_DEVICE uint32_t multiprocessor_index(void); /* that this CTA runs on */
MM_DEVICE smem_t smem_base(void);              /* start of dynamic shared memory, 1024-byte aligned */
MM_DEVICE bool elect_one(void);                /* aligned: true in one lane of the warp */
MM_DEVICE uint32_t clock_cycles(void);         /* cycles of this SM, wraps */
MM_DEVICE uint64_t clock_ns(void);             /* global timer, nanoseconds, coarse */
MM_DEVICE void sleep_ns(uint32_t ns);          /* about that long, at most 1 ms */

/* ---- Warps and CTAs ------------------------------------------------------------------------------- */

/* All 32 lanes: what each did to memory before comes before what any does after. Shuffles, ballots and elect_one order
 * nothing: a lane that is told of what another one acquired, loaded or stored needs a warp_sync besides. */
MM_DEVICE void warp_sync(void);
MM_DEVICE uint32_t warp_shuffle(uint32_t value, uint32_t lane);     /* aligned: value of that lane */
MM_DEVICE uint32_t warp_shuffle_xor(uint32_t value, uint32_t mask); /* aligned */
MM_DEVICE float warp_shuffle_xor(float value, uint32_t mask);
MM_DEVICE uint32_t warp_shuffle_up(uint32_t value, uint32_t delta); /* aligned: own value in the first lanes */
MM_DEVICE uint32_t warp_ballot(bool vote);                          /* aligned: bit l: lane l's vote */
MM_DEVICE void cta_sync(void);                                      /* all threads of the CTA */
MM_DEVICE void barrier_sync(uint32_t id, uint32_t threads);         /* named barrier 1..15; aligned */
MM_DEVICE void barrier_arrive(uint32_t id, uint32_t threads);       /* counts, does not wait; aligned */
MM_DEVICE void cluster_sync(void);                            /* all threads of the cluster, release and acquire */
template <int registers> MM_DEVICE void registers_give(void); /* aligned in a warpgroup: setmaxnreg.dec */
template <int registers> MM_DEVICE void registers_take(void); /* setmaxnreg.inc */

/* A kernel launched with programmatic stream serialization may start before the kernel before it has ended: once all
 * CTAs of that one have let it (or have ended), and what they write is seen only after the wait. Otherwise both do
 * nothing. */
MM_DEVICE void grid_launch_dependents(void);
MM_DEVICE void grid_dependency_wait(void);

/* ---- mbarrier ------------------------------------------------------------------------------------- */

/* 8 bytes of shared memory. A phase ends when `count` arrivals are in and the bytes expected have landed. */
MM_DEVICE void mbarrier_init(smem_t bar, uint32_t count);
MM_DEVICE void mbarrier_init_fence(void);   /* after the inits, before other threads (cta_sync) or TMA use them */
MM_DEVICE void mbarrier_arrive(smem_t bar); /* release, CTA scope */
MM_DEVICE void mbarrier_arrive_expect(smem_t bar, uint32_t bytes); /* one arrival and `bytes` more to land */
MM_DEVICE void mbarrier_expect(smem_t bar, uint32_t bytes);        /* no arrival */
/* In CTA `rank` of the cluster, same address. No scope: orders nothing but what TMA and wgmma waits order, since a
 * release at cluster scope is a full memory barrier in the k loop. */
MM_DEVICE void mbarrier_arrive_cluster(smem_t bar, uint32_t rank);
MM_DEVICE bool mbarrier_test(smem_t bar,
                             uint32_t parity); /* has the phase of this parity ended: acquire, may suspend */

/* ---- Tensor copies (TMA) -------------------------------------------------------------------------- */

/* global -> shared: the box at `coordinates` (innermost first, in elements; the first a multiple of 16 bytes, as it
 * also is in stores: else the machine ends the kernel), out-of-bounds elements zero; its bytes land on `bar`. One
 * thread. `cluster_mask` not 0: the same box to the same address, and its bytes to the same barrier, of each CTA in the
 * mask. */
template <int dims>
MM_DEVICE void tma_load(smem_t destination, const tensor_map *map, smem_t bar, const int32_t (&coordinates)[dims],
                        uint16_t cluster_mask = 0);
/* shared -> global, in the thread's current bulk group. Elements past a size are skipped, by 16 bytes in the innermost
 * dimension, whose size is therefore a multiple of 16 bytes; no coordinate is negative. */
template <int dims> MM_DEVICE void tma_store(const tensor_map *map, smem_t source, const int32_t (&coordinates)[dims]);
/* The same, added: one add an element in the map's type (fp32: bits independent of order when each element is added
 * once). */
template <int dims>
MM_DEVICE void tma_reduce_add(const tensor_map *map, smem_t source, const int32_t (&coordinates)[dims]);
MM_DEVICE void tma_prefetch_map(const tensor_map *map);

/* ---- Bulk copies ---------------------------------------------------------------------------------- */

/* Contiguous, multiples of 16 bytes, 16-byte aligned; either side may be a peer's global memory. One thread. */
MM_DEVICE void bulk_load(smem_t destination, const void *source, uint32_t bytes, smem_t bar);
MM_DEVICE void bulk_store(void *destination, smem_t source, uint32_t bytes); /* 128-byte aligned sources are faster */
/* Bulk groups are a thread's own: the stores since the last commit. */
MM_DEVICE void bulk_commit(void);
template <int pending> MM_DEVICE void bulk_wait_read(void); /* at most `pending` groups still read shared memory */
template <int pending> MM_DEVICE void bulk_wait(void);      /* ... are not yet visible to this thread */

/* ---- Fences --------------------------------------------------------------------------------------- */

MM_DEVICE void fence_async_shared(void); /* generic accesses to shared memory before, async proxy after */
MM_DEVICE void fence_async(void);        /* the same for all memory: generic and async, global included */
MM_DEVICE void fence_gpu(void);          /* acq_rel at GPU scope */
MM_DEVICE void fence_system(void);       /* acq_rel at system scope */
MM_DEVICE void fence_sc_system(void);    /* sc: loads after it come after stores before it, too */

/* ---- Global memory -------------------------------------------------------------------------------- */

/* Ordinary accesses, naturally aligned. */
MM_DEVICE uint32_t load_u16(const void *address); /* zero-extended */
MM_DEVICE uint32_t load_u32(const void *address);
MM_DEVICE uint64_t load_u64(const void *address);
MM_DEVICE u32x4 load_u32x4(const void *address);
MM_DEVICE u32x4 load_u32x4_l2(const void *address); /* past L1: for data another SM wrote during this kernel */
MM_DEVICE uint32_t load_u32_l2(const void *address);
MM_DEVICE void store_u16(void *address, uint32_t value); /* the lower half */
MM_DEVICE void store_u32(void *address, uint32_t value);
MM_DEVICE void store_u64(void *address, uint64_t value);
MM_DEVICE void store_u32x4(void *address, u32x4 value);
/* Flags and counters. `system` scope reaches peers and the host. */
MM_DEVICE uint32_t load_acquire_gpu(const uint32_t *address);
MM_DEVICE uint32_t load_acquire_system(const uint32_t *address);
MM_DEVICE uint32_t load_relaxed_system(const uint32_t *address);
MM_DEVICE void store_release_gpu(uint32_t *address, uint32_t value);
MM_DEVICE void store_release_system(uint32_t *address, uint32_t value);
MM_DEVICE void add_relaxed_gpu(uint32_t *address, uint32_t value); /* red: no result */
MM_DEVICE void add_release_gpu(uint32_t *address, uint32_t value);
MM_DEVICE void add_release_system(uint32_t *address, uint32_t value);
MM_DEVICE uint32_t fetch_add_relaxed_gpu(uint32_t *address, uint32_t value);
MM_DEVICE uint32_t fetch_add_acq_rel_gpu(uint32_t *address, uint32_t value);
MM_DEVICE uint32_t compare_swap_system(uint32_t *address, uint32_t expected, uint32_t value);

/* ---- Shared memory -------------------------------------------------------------------------------- */

MM_DEVICE uint32_t smem_load_u32(smem_t address);
MM_DEVICE u32x4 smem_load_u32x4(smem_t address);
MM_DEVICE void smem_store_u32(smem_t address, uint32_t value);
MM_DEVICE void smem_store_u64(smem_t address, uint32_t low, uint32_t high);
MM_DEVICE void smem_store_u32x4(smem_t address, u32x4 value);
MM_DEVICE uint32_t smem_fetch_add(smem_t address, uint32_t value);
/* aligned: four 8x8 matrices of 16-bit elements; lane l gives the address of row l%8 of matrix l/8; lane l holds
 * elements (l/4, 2*(l%4)) and the next of matrix i in value[i]. */
MM_DEVICE void matrix_store(smem_t row_address, const uint32_t (&value)[4]);
MM_DEVICE void matrix_store_transposed(smem_t row_address, const uint32_t (&value)[4]);
MM_DEVICE void matrix_load(smem_t row_address, uint32_t (&value)[4]);

/* ---- wgmma ---------------------------------------------------------------------------------------- */

/* Operands are tiles in shared memory with the 128-byte swizzle, 1024-byte aligned, as TMA lays them:
 * K_MAJOR: rows (of M or N) of 64 k elements = 128 bytes; 8 rows make 1024 bytes. A step of 16 k is +32 bytes, the next
 * 64 rows +8192 bytes. MN_MAJOR: boxes 64 wide (in M or N) and 64 k deep, each k a 128-byte row, boxes one after
 * another (8192 bytes). A step of 16 k is +2048 bytes, the next 64 of M or N +8192 bytes. */
enum operand_major { K_MAJOR = 0, MN_MAJOR = 1 };

typedef uint64_t wgmma_operand;
template <operand_major major> MM_DEVICE wgmma_operand wgmma_operand_at(smem_t tile);
/* The operand `bytes` further on, a multiple of 16. */
MM_DEVICE wgmma_operand wgmma_operand_add(wgmma_operand operand, uint32_t bytes);

/* All aligned in a warpgroup. d[64 x columns] += or = a[64 x 16] * b[16 x columns], bf16 in, fp32 out, columns 128, 192
 * or 256. Thread t of the warpgroup holds, for i < columns/8 and j < 4, element (16*(t/32) + (t%32)/4 + 8*(j/2), 8*i +
 * 2*(t%4) + j%2) in d[4*i + j]. `accumulate` 0: =. d must not be touched between the issue and the wait. */
template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[64], wgmma_operand a, wgmma_operand b, int accumulate);
template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[96], wgmma_operand a, wgmma_operand b, int accumulate);
template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[128], wgmma_operand a, wgmma_operand b, int accumulate);
/* After the wait that covers them, before d is touched: no use of d moves above this. */
template <int count> MM_DEVICE void wgmma_settle(float (&d)[count]);
MM_DEVICE void wgmma_fence(void);                       /* before the first wgmma after d was touched by the thread */
MM_DEVICE void wgmma_commit(void);                      /* closes a group */
template <int pending> MM_DEVICE void wgmma_wait(void); /* until at most `pending` groups are unfinished */

/* ---- Arithmetic ----------------------------------------------------------------------------------- */

MM_DEVICE uint32_t pack_bf16(float low, float high); /* both rounded to nearest even */
MM_DEVICE float bf16_low(uint32_t pair);             /* exact */
MM_DEVICE float bf16_high(uint32_t pair);
MM_DEVICE uint32_t count_bits(uint32_t bits); /* that are 1 */
MM_DEVICE uint32_t float_bits(float value);
MM_DEVICE float bits_float(uint32_t bits);
MM_DEVICE float exp2_approx(float x);       /* 2 ulp, subnormal results flushed to 0 */
MM_DEVICE float reciprocal_approx(float x); /* 1 ulp, subnormals flushed */

#if defined(__CUDACC__)
#include "kernels/isa_ptx.cuh"
#else
#include "sim/isa_sim.h"
#endif

#endif
