/* The caller's ids and weights, checked, narrowed and written to the slots of all ranks. */
#include "kernels/isa.cuh"
#include "kernels/plan_params.h"

#define NO_FAULT 0xffffffffu

MM_DEVICE int64_t id_at(const ids_in_params &p, uint32_t token, uint32_t slot) {
    const int64_t offset = token * p.ids.stride[0] + slot * p.ids.stride[1];
    return p.wide ? (int64_t)load_u64((const int64_t *)p.ids.data + offset)
                  : (int64_t)(int32_t)load_u32((const int32_t *)p.ids.data + offset);
}

MM_DEVICE uint32_t weight_at(const ids_in_params &p, uint32_t token, uint32_t slot) {
    return load_u32((const float *)p.weights.data + (token * p.weights.stride[0] + slot * p.weights.stride[1]));
}

/* An id is looked at before it is narrowed. The weight of a slot that is not used may be anything. */
MM_DEVICE uint32_t fault_of(const ids_in_params &p, int64_t id, uint32_t weight) {
    const uint32_t exponent = 0x7f800000;
    if (id < -1 || id >= (int64_t)p.experts)
        return IDS_BAD_ID;
    return id >= 0 && p.check_weights && (weight & exponent) == exponent ? IDS_BAD_WEIGHT : IDS_GOOD;
}

/* Writes this thread's slots; returns the first faulty one. */
MM_DEVICE uint32_t write_slots(const ids_in_params &p) {
    const uint32_t slots = p.tokens * p.top_k;
    uint32_t first_fault = NO_FAULT;
    for (uint32_t i = cta_index() * IDS_IN_THREADS + thread_index(); i < slots; i += cta_count() * IDS_IN_THREADS) {
        const uint32_t token = i / p.top_k, slot = i % p.top_k;
        const int64_t id = id_at(p, token, slot);
        const uint32_t weight = weight_at(p, token, slot);
        if (first_fault == NO_FAULT && fault_of(p, id, weight) != IDS_GOOD)
            first_fault = i;
        for (uint32_t rank = 0; rank < p.world; rank++) {
            store_u32(p.ids_out[rank] + i, (uint32_t)id);
            store_u32(p.weights_out[rank] + i, weight);
        }
    }
    return first_fault;
}

/* Aligned. */
MM_DEVICE uint32_t least_of_warp(uint32_t value) {
    for (uint32_t mask = 16; mask > 0; mask /= 2) {
        const uint32_t other = warp_shuffle_xor(value, mask);
        value = other < value ? other : value;
    }
    return value;
}

/* The least value of the CTA's threads, in the first warp. */
MM_DEVICE uint32_t least_of_cta(uint32_t value) {
    const uint32_t of_warp = least_of_warp(value), warp = warp_index();
    if (lane_index() == 0)
        smem_store_u32(smem_base() + 4 * warp, of_warp);
    cta_sync();
    if (warp > 0)
        return NO_FAULT;
    return least_of_warp(lane_index() < IDS_IN_THREADS / 32 ? smem_load_u32(smem_base() + 4 * lane_index()) : NO_FAULT);
}

MM_DEVICE void write_fault(const ids_in_params &p, uint32_t first_fault) {
    if (first_fault == NO_FAULT) {
        store_u32(&p.fault->kind, IDS_GOOD);
        return;
    }
    const uint32_t token = first_fault / p.top_k, slot = first_fault % p.top_k;
    const int64_t id = id_at(p, token, slot);
    const uint32_t weight = weight_at(p, token, slot);
    store_u32(&p.fault->kind, fault_of(p, id, weight));
    store_u32(&p.fault->token, token);
    store_u32(&p.fault->slot, slot);
    store_u32(&p.fault->weight, weight);
    store_u64(&p.fault->id, (uint64_t)id);
}

/* The CTA that is done last finds the first fault of all. */
MM_KERNEL(mm_ids_in, ids_in_params, IDS_IN_THREADS) {
    grid_dependency_wait();
    grid_launch_dependents();
    uint32_t first_fault = least_of_cta(write_slots(p));
    if (warp_index() > 0)
        return;
    uint32_t ctas_done = 0;
    if (lane_index() == 0) {
        store_u32(p.first_faults + cta_index(), first_fault);
        ctas_done = fetch_add_acq_rel_gpu(p.ctas_done, 1);
    }
    if (warp_shuffle(ctas_done, 0) + 1 < cta_count())
        return;
    for (uint32_t cta = lane_index(); cta < cta_count(); cta += 32) {
        const uint32_t of_cta = load_u32_l2(p.first_faults + cta);
        first_fault = of_cta < first_fault ? of_cta : first_fault;
    }
    first_fault = least_of_warp(first_fault);
    if (lane_index() == 0) {
        write_fault(p, first_fault);
        store_u32(p.ctas_done, 0);
    }
}
