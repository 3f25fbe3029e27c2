/* The machine operations as PTX for sm_90a; what each one means is said in isa.cuh. */
#ifndef MM_KERNELS_ISA_PTX_CUH
#define MM_KERNELS_ISA_PTX_CUH

/* ---- Who and where -------------------------------------------------------------------------------- */

#define MM_SPECIAL_U32(name, source)                                                                                   \
    MM_DEVICE uint32_t name(void) {                                                                                    \
        uint32_t value;                                                                                                \
        asm("mov.u32 %0, " source ";" : "=r"(value));                                                                  \
        return value;                                                                                                  \
    }
MM_SPECIAL_U32(thread_index, "%tid.x")
MM_SPECIAL_U32(lane_index, "%laneid")
MM_SPECIAL_U32(cta_index, "%ctaid.x")
MM_SPECIAL_U32(cta_count, "%nctaid.x")
MM_SPECIAL_U32(cluster_rank, "%cluster_ctarank")
MM_SPECIAL_U32(multiprocessor_index, "%smid")
#undef MM_SPECIAL_U32

/* A shuffle from lane 0 tells the compiler that the value is the same in the whole warp. */
MM_DEVICE uint32_t warp_index(void) {
    return __shfl_sync(~0u, thread_index() / 32, 0);
}

MM_DEVICE smem_t smem_base(void) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared_memory[];
    return (smem_t)__cvta_generic_to_shared(dynamic_shared_memory);
}

MM_DEVICE bool elect_one(void) {
    uint32_t elected;
    asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(elected));
    return elected != 0;
}

MM_DEVICE uint32_t clock_cycles(void) {
    uint32_t value;
    asm volatile("mov.u32 %0, %clock;" : "=r"(value)::"memory");
    return value;
}

MM_DEVICE uint64_t clock_ns(void) {
    uint64_t value;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value)::"memory");
    return value;
}

MM_DEVICE void sleep_ns(uint32_t ns) {
    asm volatile("nanosleep.u32 %0;" ::"r"(ns));
}

/* ---- Warps and CTAs ------------------------------------------------------------------------------- */

MM_DEVICE void warp_sync(void) {
    __syncwarp();
}
MM_DEVICE uint32_t warp_shuffle(uint32_t value, uint32_t lane) {
    return __shfl_sync(~0u, value, lane);
}
MM_DEVICE uint32_t warp_shuffle_xor(uint32_t value, uint32_t mask) {
    return __shfl_xor_sync(~0u, value, mask);
}
MM_DEVICE float warp_shuffle_xor(float value, uint32_t mask) {
    return __shfl_xor_sync(~0u, value, mask);
}
MM_DEVICE uint32_t warp_shuffle_up(uint32_t value, uint32_t delta) {
    return __shfl_up_sync(~0u, value, delta);
}
MM_DEVICE uint32_t warp_ballot(bool vote) {
    return __ballot_sync(~0u, vote);
}
MM_DEVICE void cta_sync(void) {
    asm volatile("barrier.sync.aligned 0;" ::: "memory");
}

MM_DEVICE void barrier_sync(uint32_t id, uint32_t threads) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

MM_DEVICE void barrier_arrive(uint32_t id, uint32_t threads) {
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

MM_DEVICE void cluster_sync(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <int registers> MM_DEVICE void registers_give(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> MM_DEVICE void registers_take(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

MM_DEVICE void grid_launch_dependents(void) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
MM_DEVICE void grid_dependency_wait(void) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* ---- mbarrier ------------------------------------------------------------------------------------- */

MM_DEVICE void mbarrier_init(smem_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

MM_DEVICE void mbarrier_init_fence(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

MM_DEVICE void mbarrier_arrive(smem_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

MM_DEVICE void mbarrier_arrive_expect(smem_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

MM_DEVICE void mbarrier_expect(smem_t bar, uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

MM_DEVICE void mbarrier_arrive_cluster(smem_t bar, uint32_t rank) {
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

MM_DEVICE bool mbarrier_test(smem_t bar, uint32_t parity) {
    uint32_t ended;
    asm volatile("{\n.reg .pred ended;\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, ended;\n}"
                 : "=r"(ended)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return ended != 0;
}

/* ---- Tensor copies (TMA) -------------------------------------------------------------------------- */

#define MM_COORDS_1 "{%3}"
#define MM_COORDS_2 "{%3, %4}"
#define MM_COORDS_3 "{%3, %4, %5}"
#define MM_COORDS_4 "{%3, %4, %5, %6}"
#define MM_COORDS_5 "{%3, %4, %5, %6, %7}"
#define MM_ARGS_2(c) "r"(c[0]), "r"(c[1])
#define MM_ARGS_3(c) MM_ARGS_2(c), "r"(c[2])
#define MM_ARGS_4(c) MM_ARGS_3(c), "r"(c[3])
#define MM_ARGS_5(c) MM_ARGS_4(c), "r"(c[4])

/* `mask_operand` is the number of the operand after the coordinates. */
#define MM_TMA_LOAD(dims, coords, args, mask_operand)                                                                  \
    template <>                                                                                                        \
    MM_DEVICE void tma_load<dims>(smem_t destination, const tensor_map *map, smem_t bar, const int32_t(&c)[dims],      \
                                  uint16_t cluster_mask) {                                                             \
        if (cluster_mask == 0) {                                                                                       \
            asm volatile("cp.async.bulk.tensor." #dims "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "   \
                         "[%0], [%1, " coords "], [%2];" ::"r"(destination),                                           \
                         "l"(map), "r"(bar), args(c)                                                                   \
                         : "memory");                                                                                  \
        } else {                                                                                                       \
            asm volatile("cp.async.bulk.tensor." #dims "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"    \
                         ".multicast::cluster [%0], [%1, " coords "], [%2], %" #mask_operand ";" ::"r"(destination),   \
                         "l"(map), "r"(bar), args(c), "h"(cluster_mask)                                                \
                         : "memory");                                                                                  \
        }                                                                                                              \
    }
MM_TMA_LOAD(2, MM_COORDS_2, MM_ARGS_2, 5)
MM_TMA_LOAD(3, MM_COORDS_3, MM_ARGS_3, 6)
MM_TMA_LOAD(4, MM_COORDS_4, MM_ARGS_4, 7)
MM_TMA_LOAD(5, MM_COORDS_5, MM_ARGS_5, 8)

/* Operand %2 is not used here, so that the coordinates have the numbers they have above. */
#define MM_TMA_OUT(name, opcode, dims, coords, args)                                                                   \
    template <> MM_DEVICE void name<dims>(const tensor_map *map, smem_t source, const int32_t(&c)[dims]) {             \
        asm volatile(opcode "." #dims "d.global.shared::cta" MM_TMA_OUT_KIND "[%0, " coords "], [%1];" ::"l"(map),     \
                     "r"(source), "r"(0), args(c)                                                                      \
                     : "memory");                                                                                      \
    }
#define MM_TMA_OUT_KIND ".tile.bulk_group "
MM_TMA_OUT(tma_store, "cp.async.bulk.tensor", 2, MM_COORDS_2, MM_ARGS_2)
MM_TMA_OUT(tma_store, "cp.async.bulk.tensor", 3, MM_COORDS_3, MM_ARGS_3)
#undef MM_TMA_OUT_KIND
#define MM_TMA_OUT_KIND ".add.tile.bulk_group "
MM_TMA_OUT(tma_reduce_add, "cp.reduce.async.bulk.tensor", 2, MM_COORDS_2, MM_ARGS_2)
MM_TMA_OUT(tma_reduce_add, "cp.reduce.async.bulk.tensor", 3, MM_COORDS_3, MM_ARGS_3)
#undef MM_TMA_OUT_KIND

MM_DEVICE void tma_prefetch_map(const tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---- Bulk copies ---------------------------------------------------------------------------------- */

MM_DEVICE void bulk_load(smem_t destination, const void *source, uint32_t bytes, smem_t bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
        "l"(source), "r"(bytes), "r"(bar)
        : "memory");
}

MM_DEVICE void bulk_store(void *destination, smem_t source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(source),
                 "r"(bytes)
                 : "memory");
}

MM_DEVICE void bulk_commit(void) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int pending> MM_DEVICE void bulk_wait_read(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

template <int pending> MM_DEVICE void bulk_wait(void) {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---- Fences --------------------------------------------------------------------------------------- */

MM_DEVICE void fence_async_shared(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
MM_DEVICE void fence_async(void) {
    asm volatile("fence.proxy.async;" ::: "memory");
}
MM_DEVICE void fence_gpu(void) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
MM_DEVICE void fence_system(void) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
MM_DEVICE void fence_sc_system(void) {
    asm volatile("fence.sc.sys;" ::: "memory");
}

/* ---- Global memory -------------------------------------------------------------------------------- */

#define MM_LOAD_U32(name, opcode)                                                                                      \
    MM_DEVICE uint32_t name {                                                                                          \
        uint32_t value;                                                                                                \
        asm volatile(opcode ".u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");                                 \
        return value;                                                                                                  \
    }
MM_LOAD_U32(load_u32(const void *address), "ld.global")
MM_LOAD_U32(load_u32_l2(const void *address), "ld.global.cg")
MM_LOAD_U32(load_acquire_gpu(const uint32_t *address), "ld.acquire.gpu.global")
MM_LOAD_U32(load_acquire_system(const uint32_t *address), "ld.acquire.sys.global")
MM_LOAD_U32(load_relaxed_system(const uint32_t *address), "ld.relaxed.sys.global")
#undef MM_LOAD_U32

MM_DEVICE uint32_t load_u16(const void *address) {
    uint32_t value;
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

MM_DEVICE uint64_t load_u64(const void *address) {
    uint64_t value;
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}

#define MM_LOAD_U32X4(name, opcode)                                                                                    \
    MM_DEVICE u32x4 name(const void *address) {                                                                        \
        u32x4 v;                                                                                                       \
        asm volatile(opcode ".v4.u32 {%0, %1, %2, %3}, [%4];"                                                          \
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)                                                      \
                     : "l"(address)                                                                                    \
                     : "memory");                                                                                      \
        return v;                                                                                                      \
    }
MM_LOAD_U32X4(load_u32x4, "ld.global")
MM_LOAD_U32X4(load_u32x4_l2, "ld.global.cg")
#undef MM_LOAD_U32X4

#define MM_STORE_U32(name, type, opcode)                                                                               \
    MM_DEVICE void name(type *address, uint32_t value) {                                                               \
        asm volatile(opcode ".u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");                                   \
    }
MM_STORE_U32(store_u32, void, "st.global")
MM_STORE_U32(store_release_gpu, uint32_t, "st.release.gpu.global")
MM_STORE_U32(store_release_system, uint32_t, "st.release.sys.global")
MM_STORE_U32(add_relaxed_gpu, uint32_t, "red.relaxed.gpu.global.add")
MM_STORE_U32(add_release_gpu, uint32_t, "red.release.gpu.global.add")
MM_STORE_U32(add_release_system, uint32_t, "red.release.sys.global.add")
#undef MM_STORE_U32

MM_DEVICE void store_u16(void *address, uint32_t value) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

MM_DEVICE void store_u64(void *address, uint64_t value) {
    asm volatile("st.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

MM_DEVICE void store_u32x4(void *address, u32x4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

#define MM_FETCH_ADD(name, order)                                                                                      \
    MM_DEVICE uint32_t name(uint32_t *address, uint32_t value) {                                                       \
        uint32_t old;                                                                                                  \
        asm volatile("atom." order ".gpu.global.add.u32 %0, [%1], %2;"                                                 \
                     : "=r"(old)                                                                                       \
                     : "l"(address), "r"(value)                                                                        \
                     : "memory");                                                                                      \
        return old;                                                                                                    \
    }
MM_FETCH_ADD(fetch_add_relaxed_gpu, "relaxed")
MM_FETCH_ADD(fetch_add_acq_rel_gpu, "acq_rel")
#undef MM_FETCH_ADD

MM_DEVICE uint32_t compare_swap_system(uint32_t *address, uint32_t expected, uint32_t value) {
    uint32_t old;
    asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(address), "r"(expected), "r"(value)
                 : "memory");
    return old;
}

/* ---- Shared memory -------------------------------------------------------------------------------- */

MM_DEVICE uint32_t smem_load_u32(smem_t address) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

MM_DEVICE u32x4 smem_load_u32x4(smem_t address) {
    u32x4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

MM_DEVICE void smem_store_u32(smem_t address, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

MM_DEVICE void smem_store_u64(smem_t address, uint32_t low, uint32_t high) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(low), "r"(high) : "memory");
}

MM_DEVICE void smem_store_u32x4(smem_t address, u32x4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

MM_DEVICE uint32_t smem_fetch_add(smem_t address, uint32_t value) {
    uint32_t old;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(address), "r"(value) : "memory");
    return old;
}

MM_DEVICE void matrix_store(smem_t row_address, const uint32_t (&value)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
                 "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3])
                 : "memory");
}

MM_DEVICE void matrix_store_transposed(smem_t row_address, const uint32_t (&value)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
                 "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3])
                 : "memory");
}

MM_DEVICE void matrix_load(smem_t row_address, uint32_t (&value)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
                 : "r"(row_address)
                 : "memory");
}

/* ---- wgmma ---------------------------------------------------------------------------------------- */

/* A matrix descriptor: bits 0-13 address, 16-29 leading offset (MN-major: to the next 64 of M or N), 32-45 stride
 * offset (to the next 8 rows of 128 bytes), each in units of 16 bytes; bits 62-63 = 1: 128-byte swizzle. */
template <operand_major major> MM_DEVICE wgmma_operand wgmma_operand_at(smem_t tile) {
    const uint64_t leading = major == MN_MAJOR ? 8192 / 16 : 1, stride = 1024 / 16;
    return (uint64_t)((tile & 0x3ffff) / 16) | leading << 16 | stride << 32 | 1ull << 62;
}

MM_DEVICE wgmma_operand wgmma_operand_add(wgmma_operand operand, uint32_t bytes) {
    return operand + bytes / 16;
}

MM_DEVICE void wgmma_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
MM_DEVICE void wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending> MM_DEVICE void wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

template <int count> MM_DEVICE void wgmma_settle(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[64], wgmma_operand a, wgmma_operand b, int accumulate) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, keep, 1, 1, %67, %68;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
                   "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
                   "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
                   "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
                   "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
                   "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(accumulate), "n"((int)a_major), "n"((int)b_major));
}

template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[96], wgmma_operand a, wgmma_operand b, int accumulate) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
        "}, %96, %97, keep, 1, 1, %99, %100;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),
          "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]),
          "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),
          "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]),
          "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
        : "l"(a), "l"(b), "r"(accumulate), "n"((int)a_major), "n"((int)b_major));
}

template <operand_major a_major, operand_major b_major>
MM_DEVICE void wgmma_bf16(float (&d)[128], wgmma_operand a, wgmma_operand b, int accumulate) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                 "}, %128, %129, keep, 1, 1, %131, %132;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
                   "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
                   "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
                   "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
                   "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
                   "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),
                   "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
                   "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]),
                   "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]),
                   "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]),
                   "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]),
                   "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]),
                   "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]),
                   "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]),
                   "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
                 : "l"(a), "l"(b), "r"(accumulate), "n"((int)a_major), "n"((int)b_major));
}

/* ---- Arithmetic ----------------------------------------------------------------------------------- */

MM_DEVICE uint32_t pack_bf16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

MM_DEVICE float bf16_low(uint32_t pair) {
    return __uint_as_float(pair << 16);
}
MM_DEVICE float bf16_high(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

MM_DEVICE uint32_t count_bits(uint32_t bits) {
    return (uint32_t)__popc((int)bits);
}
MM_DEVICE uint32_t float_bits(float value) {
    return __float_as_uint(value);
}
MM_DEVICE float bits_float(uint32_t bits) {
    return __uint_as_float(bits);
}

MM_DEVICE float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

MM_DEVICE float reciprocal_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
