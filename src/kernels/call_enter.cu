/* Ids and weights, checked and narrowed, to the slots of all ranks; then the header, and ready. */
#include <stddef.h>

#include "kernels/call_wait.cuh"
#include "kernels/enter_params.h"
#include "kernels/warp_least.cuh"

#define NO_FAULT 0xffffffffu

MM_DEVICE int64_t id_at(const enter_params &p, uint32_t token, uint32_t slot) {
    const int64_t offset = token * p.ids.stride[0] + slot * p.ids.stride[1];
    return p.wide ? (int64_t)load_u64((const int64_t *)p.ids.data + offset)
                  : (int64_t)(int32_t)load_u32((const int32_t *)p.ids.data + offset);
}

MM_DEVICE uint32_t weight_at(const enter_params &p, uint32_t token, uint32_t slot) {
    return load_u32((const float *)p.weights.data + (token * p.weights.stride[0] + slot * p.weights.stride[1]));
}

/* An id is looked at before it is narrowed. The weight of a slot that is not used may be anything. */
MM_DEVICE uint32_t fault_of(const enter_params &p, int64_t id, uint32_t weight) {
    const uint32_t exponent = 0x7f800000;
    if (id < -1 || id >= (int64_t)p.experts)
        return IDS_BAD_ID;
    return id >= 0 && p.check_weights && (weight & exponent) == exponent ? IDS_BAD_WEIGHT : IDS_GOOD;
}

/* This rank's part of a rank's ids or weights. */
MM_DEVICE uint32_t *part_of(const enter_params &p, uint32_t rank, uint64_t slot) {
    return (uint32_t *)(p.group.segment[rank] + slot);
}

/* Writes this thread's slots; returns the first faulty one. */
MM_DEVICE uint32_t write_slots(const enter_params &p) {
    const uint32_t slots = p.tokens * p.top_k;
    uint32_t first_fault = NO_FAULT;
    for (uint32_t i = cta_index() * ENTER_THREADS + thread_index(); i < slots; i += cta_count() * ENTER_THREADS) {
        const uint32_t token = i / p.top_k, slot = i % p.top_k;
        const int64_t id = id_at(p, token, slot);
        const uint32_t weight = weight_at(p, token, slot);
        if (first_fault == NO_FAULT && fault_of(p, id, weight) != IDS_GOOD)
            first_fault = i;
        for (uint32_t rank = 0; rank < p.group.world; rank++) {
            store_u32(part_of(p, rank, p.ids_slot) + i, (uint32_t)id);
            store_u32(part_of(p, rank, p.weights_slot) + i, weight);
        }
    }
    return first_fault;
}

/* The least value of the CTA's threads, in the first warp. */
MM_DEVICE uint32_t least_of_cta(uint32_t value) {
    const uint32_t of_warp = least_of_warp(value), warp = warp_index();
    if (lane_index() == 0)
        smem_store_u32(smem_base() + 4 * warp, of_warp);
    cta_sync();
    if (warp > 0)
        return NO_FAULT;
    return least_of_warp(lane_index() < ENTER_THREADS / 32 ? smem_load_u32(smem_base() + 4 * lane_index()) : NO_FAULT);
}

MM_DEVICE ids_fault describe_fault(const enter_params &p, uint32_t first_fault) {
    if (first_fault == NO_FAULT)
        return {IDS_GOOD, 0, 0, 0, 0};
    const uint32_t token = first_fault / p.top_k, slot = first_fault % p.top_k;
    const int64_t id = id_at(p, token, slot);
    const uint32_t weight = weight_at(p, token, slot);
    return {fault_of(p, id, weight), token, slot, weight, id};
}

/* By one warp: to all ranks, this one too. */
MM_DEVICE void send_header(const enter_params &p, const ids_fault &fault, uint32_t call) {
    const uint32_t *words = (const uint32_t *)&p.header;
    const bool backward = p.forward_call != nullptr;
    const uint32_t forward_call = backward ? load_u32(p.forward_call) : 0;
    for (uint32_t rank = 0; rank < p.group.world; rank++) {
        call_header *to = &control_of(p.group, rank)->header[p.group.rank];
        for (uint32_t i = lane_index(); i < sizeof p.header / 4; i += 32)
            if (i * 4 < offsetof(call_header, fault) || i * 4 >= offsetof(call_header, reason))
                store_u32((uint32_t *)to + i, backward && i == p.forward_word ? forward_call : words[i]);
        if (lane_index() == 0) {
            store_u32(&to->fault.kind, fault.kind);
            store_u32(&to->fault.token, fault.token);
            store_u32(&to->fault.slot, fault.slot);
            store_u32(&to->fault.weight, fault.weight);
            store_u64(&to->fault.id, (uint64_t)fault.id);
        }
    }
    fence_system();
    warp_sync();
    for (uint32_t rank = lane_index(); rank < p.group.world; rank += 32)
        store_release_system(&control_of(p.group, rank)->ready[p.group.rank].value, call);
}

/* The CTA that is done last finds the first fault of all, and speaks for all. */
MM_KERNEL(mm_call_enter, enter_params, ENTER_THREADS) {
    grid_dependency_wait();
    grid_launch_dependents();
    if (load_u32(&p.group.state->result.outcome) != CALL_GOOD)
        return;
    uint32_t first_fault = least_of_cta(write_slots(p));
    if (warp_index() > 0)
        return;
    uint32_t ctas_done = 0;
    if (lane_index() == 0) {
        store_u32(p.first_faults + cta_index(), first_fault);
        fence_system();
        ctas_done = fetch_add_acq_rel_gpu(p.ctas_done, 1);
    }
    if (warp_shuffle(ctas_done, 0) + 1 < cta_count())
        return;
    warp_sync(); /* what lane 0 has acquired is read, and passed on, by all lanes */
    for (uint32_t cta = lane_index(); cta < cta_count(); cta += 32) {
        const uint32_t of_cta = load_u32_l2(p.first_faults + cta);
        first_fault = of_cta < first_fault ? of_cta : first_fault;
    }
    first_fault = least_of_warp(first_fault);
    send_header(p, describe_fault(p, first_fault), load_u32(&p.group.state->call));
    if (lane_index() == 0)
        store_u32(p.ctas_done, 0);
}
