/* How the warps of a fused kernel record what they do. A source that defines MM_TRACED before it includes anything does
 * so, and MM_NO_LOADER where all warps do the same; in all others everything here does nothing, and leaves no machine
 * code.
 *
 * Of a warp one thread writes. What it needs to know from span to span lies in shared memory. */
#ifndef MM_KERNELS_TRACE_CUH
#define MM_KERNELS_TRACE_CUH

#include "kernels/isa.cuh"
#include "kernels/trace_params.h"

#if defined(MM_TRACED)
#define TRACED 1
#else
#define TRACED 0
#endif
#if defined(MM_NO_LOADER)
#define LOADER_ALONE 0
#else
#define LOADER_ALONE 1
#endif

/* ---- Logs ---- */

/* Of flights: `last` and `waited` are the rank and the token of what is pulled next. */
struct trace_log {
    uint32_t last;   /* when the last span ended */
    uint32_t waited; /* since then */
    uint32_t count;  /* of records so far */
};

MM_DEVICE uint32_t own_role(void) {
    return thread_index() / 32;
}

/* The loader is one thread, in kernels that have one. */
MM_DEVICE bool writes_log(void) {
    return lane_index() == 0 || (LOADER_ALONE && own_role() == TRACE_LOADER);
}

MM_DEVICE smem_t log_address(uint32_t role) {
    return smem_base() + TRACE_OFFSET + role * TRACE_LOG_BYTES;
}
MM_DEVICE trace_log log_of(uint32_t role) {
    const u32x4 words = smem_load_u32x4(log_address(role));
    return {words.x, words.y, words.z};
}
MM_DEVICE void set_log(uint32_t role, const trace_log &log) {
    smem_store_u32x4(log_address(role), {log.last, log.waited, log.count, 0});
}

MM_DEVICE void open_log(uint32_t role) {
    if (TRACED && writes_log())
        set_log(role, {clock_cycles(), 0, 0});
}

MM_DEVICE void close_log(const trace_params &trace, uint32_t role) {
    if (TRACED && writes_log())
        store_u32(&trace.ctas[cta_index()].records[role], log_of(role).count);
}

/* The next span begins now. */
MM_DEVICE void resume_log(void) {
    if (TRACED && writes_log())
        set_log(own_role(), {clock_cycles(), 0, log_of(own_role()).count});
}

/* ---- Spans ---- */

/* Record `number` of a role; NULL: there is no room. */
MM_DEVICE trace_record *record_at(const trace_params &trace, uint32_t role, uint32_t number) {
    const uint64_t first = ((uint64_t)cta_index() * TRACE_ROLES + role) * trace.room;
    return number < trace.room ? trace.records + first + number : nullptr;
}

/* One of this warp has ended; its kind and what belongs to that. */
MM_DEVICE void note(const trace_params &trace, uint32_t kind, uint32_t block = 0, uint32_t tile = 0, uint32_t token = 0,
                    uint32_t rows = 0, uint32_t peer_rows = 0, uint32_t bytes = 0, uint64_t ranks = 0) {
    if (!TRACED || !writes_log())
        return;
    const uint32_t now = clock_cycles(), role = own_role();
    const trace_log log = log_of(role);
    trace_record *record = record_at(trace, role, log.count);
    if (record != nullptr) {
        store_u32x4(&record->begin, {log.last, now, log.waited, kind});
        store_u32x4(&record->block, {block, tile, token, rows});
        store_u32x4(&record->peer_rows, {peer_rows, bytes, (uint32_t)ranks, (uint32_t)(ranks >> 32)});
    }
    set_log(role, {now, 0, log.count + 1});
}

/* Around a wait inside a span. */
MM_DEVICE uint32_t wait_begins(void) {
    return TRACED ? clock_cycles() : 0;
}
MM_DEVICE void wait_ends(uint32_t begin) {
    if (!TRACED || !writes_log())
        return;
    const trace_log log = log_of(own_role());
    set_log(own_role(), {log.last, log.waited + clock_cycles() - begin, log.count});
}

/* ---- CTAs ---- */

enum trace_anchor { TRACE_BEGIN, TRACE_END };

/* By one thread. Just after a tick of the global timer, which may be coarse. */
MM_DEVICE void anchor_cta(const trace_params &trace, trace_anchor which) {
    trace_cta *cta = trace.ctas + cta_index();
    const uint64_t before = clock_ns();
    uint64_t now = before;
    while (now == before)
        now = clock_ns();
    store_u32(&cta->cycles[which], clock_cycles());
    store_u64(&cta->ns[which], now);
    store_u32(&cta->multiprocessor, multiprocessor_index());
}

#endif
