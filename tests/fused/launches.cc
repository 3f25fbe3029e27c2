/* The calls of a group: what every call is launched with, and forwards; see group.h. */
#include <algorithm>

#include "group.h"
#include "kernels/fused_shape.h"

extern "C" void mm_call_open(const open_params &p);
extern "C" void mm_call_copy(const copy_params &p);
extern "C" void mm_call_enter(const enter_params &p);
extern "C" void mm_call_meet(const call_params &p);
extern "C" void mm_call_stop(const call_params &p);
extern "C" void mm_count_slots(const plan_params &p);
extern "C" void mm_place_slots(const plan_params &p);
extern "C" void mm_forward(const forward_params &p);
extern "C" void mm_forward_grouped(const forward_params &p);

size_t fused_group::prepare(const fused_batch &batch, unsigned char poison_with) {
    prepared_call call = {{}, poison_with, false};
    for (unsigned r = 0; r < how.world; r++) {
        const size_t first = (size_t)batch.first(r), tokens = (size_t)batch.tokens[r];
        const size_t hidden = (size_t)layer.hidden, top_k = (size_t)layer.top_k;
        rank_call c = {};
        c.tokens = (uint32_t)tokens;
        c.x = copy_of(r, batch.x.data() + first * hidden, tokens * hidden);
        c.ids = copy_of(r, batch.ids.data() + first * top_k, tokens * top_k);
        c.weights = copy_of(r, batch.weights.data() + first * top_k, tokens * top_k);
        c.y = room<uint16_t>(r, y_elements(c));
        gpus.fill(c.y, poison_with, y_elements(c) * sizeof *c.y);
        c.told = make_told(r);
        call.ranks.push_back(c);
    }
    calls.push_back(call);
    return calls.size() - 1;
}

call_group fused_group::group_of(size_t call, unsigned r) const {
    call_group group = {};
    group.world = how.world;
    group.rank = r;
    group.arrive_ns = how.arrive_ns;
    group.progress_ns = how.progress_ns;
    std::copy(segments.begin(), segments.end(), group.segment);
    group.state = ranks[r].state;
    group.told = calls[call].ranks[r].told;
    return group;
}

enter_params fused_group::enter_of(size_t call, unsigned r) const {
    const rank_call &c = calls[call].ranks[r];
    const uint64_t part = (uint64_t)(how.max_tokens * layer.top_k) * sizeof(int32_t);
    enter_params p = {};
    p.group = group_of(call, r);
    for (uint32_t i = 0; i < CALL_AGREED_WORDS; i++)
        p.header.agreed[i] = i;
    p.header.agreed[CALL_AGREED_WORDS - 1] += ranks[r].wrong.agreed;
    p.header.status = ranks[r].wrong.status;
    p.header.tokens = (int32_t)c.tokens;
    if (calls[call].backward) {
        p.forward_call = &ranks[r].tables.all->call;
        p.forward_word = 1;
        p.header.wants_dx = wants(r, DX);
        p.header.wants_dw = wants(r, DWEIGHTS);
    } else {
        p.ids = {c.ids, {layer.top_k, 1}};
        p.weights = {c.weights, {layer.top_k, 1}};
        p.wide = 1;
        p.tokens = c.tokens;
    }
    p.top_k = (uint32_t)layer.top_k;
    p.experts = (uint32_t)layer.experts;
    p.check_weights = 1;
    p.ids_slot = ids_slot + r * part;
    p.weights_slot = weights_slot + r * part;
    p.first_faults = ranks[r].first_faults;
    p.ctas_done = ranks[r].ctas_done;
    return p;
}

copy_params fused_group::copy_of(size_t call, unsigned r) const {
    const rank_call &c = calls[call].ranks[r];
    copy_params p = {};
    p.group = group_of(call, r);
    const auto bring = [&](const uint16_t *from, uint64_t slot) {
        p.copies[p.count++] = {{const_cast<uint16_t *>(from), {layer.hidden, 1}}, slot};
    };
    if (calls[call].backward)
        bring(c.dy, dy_slot);
    if (!calls[call].backward || !how.keep)
        bring(c.x, x_slot);
    p.tokens = c.tokens;
    p.hidden = (uint32_t)layer.hidden;
    p.ctas_done = ranks[r].ctas_copied;
    return p;
}

plan_params fused_group::plan_of(size_t call, unsigned r) const {
    const rank_memory &m = ranks[r];
    (void)call;
    plan_params p = {};
    p.world = how.world;
    p.rank = r;
    p.experts = (uint32_t)layer.experts;
    p.top_k = (uint32_t)layer.top_k;
    p.chunks = how.chunks;
    p.warps = how.warps;
    p.capacity = how.capacity;
    p.drop = how.drop;
    p.row_room = m.row_room;
    p.tokens = m.state->tokens;
    p.ids = (const int32_t *)(segments[r] + ids_slot);
    p.weights = (const float *)(segments[r] + weights_slot);
    p.rank_stride = (uint64_t)(how.max_tokens * layer.top_k);
    p.chunk_counts = m.chunk_counts;
    p.tables = m.tables;
    p.rows = m.rows;
    p.slots = m.slots;
    p.token_rows = m.token_rows;
    p.token_stride = (uint64_t)how.max_tokens;
    p.state = m.state;
    p.work = m.work;
    p.h_tiles = h_tiles + (uint32_t)m.wrong.h_tiles;
    p.result_tiles = result_tiles + (uint32_t)m.wrong.result_tiles;
    return p;
}

fused_call fused_group::fused_of(size_t call, unsigned r) const {
    const rank_memory &m = ranks[r];
    const rank_call &c = calls[call].ranks[r];
    const bool backward = calls[call].backward;
    const auto own = [&](uint16_t *rank_call::*rows) {
        size_t from = call;
        while (m.wrong.stale && (from == call || calls[from].backward != backward))
            from--;
        return m.wrong.stale || how.callers_x ? calls[from].ranks[r].*rows : nullptr;
    };
    fused_call p = {};
    p.group = group_of(call, r);
    p.work = m.work;
    p.rows = m.rows;
    p.tables = m.tables;
    p.slots = m.slots;
    p.token_rows = m.token_rows;
    p.token_stride = (uint64_t)how.max_tokens;
    if (backward)
        p.fetched[p.fetched_count++] = {dy_slot, own(&rank_call::dy), m.dy_rows};
    if (!backward || !how.keep)
        p.fetched[p.fetched_count++] = {x_slot, own(&rank_call::x), m.x_rows};
    p.combine = combine + m.wrong.combine;
    p.hidden = (uint32_t)layer.hidden;
    p.intermediate = (uint32_t)layer.intermediate;
    p.top_k = (uint32_t)layer.top_k;
    p.tokens = c.tokens;
    p.clamp = layer.limit > 0;
    p.limit = (float)layer.limit;
    return p;
}

forward_params fused_group::forward_of(size_t call, unsigned r, bool tentative) const {
    const rank_memory &m = ranks[r];
    const rank_call &c = calls[call].ranks[r];
    forward_params p = {};
    p.call = fused_of(call, r);
    p.x = m.x_map;
    p.gate = m.gate;
    p.up = m.up;
    p.h = m.h_map;
    p.h_out = m.h_out;
    p.gate_out = m.wrong.swapped ? m.up_out : m.gate_out;
    p.up_out = m.wrong.swapped ? m.gate_out : m.up_out;
    p.down = m.down;
    p.y = y_matrix(c);
    p.local_experts = (uint32_t)local_experts();
    p.to_sum = sums_on_ranks() ? m.dy_rows : nullptr;
    p.tentative = tentative;
    p.row_room = m.row_room;
    p.keep = how.keep;
    return p;
}

bool fused_group::copies() const {
    return how.world > 1 || !how.callers_x;
}

/* Beside what the rank's stream goes on with. */
void fused_group::launch_copy(size_t call, unsigned r) {
    rank_memory &m = ranks[r];
    const copy_params p = copy_of(call, r);
    gpus.wait(m.side, gpus.record(gpus.default_stream(r)));
    gpus.launch(m.side, sim::launch_of(mm_call_copy, "mm_call_copy", p, how.enter_ctas, ENTER_THREADS, 0));
    m.copied = gpus.record(m.side);
}

void fused_group::launch_stage(size_t call, unsigned r, call_stage stage) {
    if (stage >= RESUME && stage <= SPOIL)
        return launch_backward_stage(call, r, stage);
    struct sim::launch l;
    const auto queue = [&](auto kernel, const char *name, const auto &p, unsigned ctas, unsigned threads,
                           size_t shared_bytes) {
        l = sim::launch_of(kernel, name, p, ctas, threads, shared_bytes);
        l.programmatic = how.programmatic;
        if (stage == FORWARD || stage == FORWARD_IF_ROOM)
            l.roles = {"load", "group", "fetch", "store"};
        gpus.launch(gpus.default_stream(r), l);
    };
    const uint32_t experts = (uint32_t)layer.experts;
    const unsigned plan_ctas = how.world * how.chunks, plan_threads = 32 * how.warps;
    switch (stage) {
    case OPEN:
        queue(mm_call_open, "mm_call_open", open_params{group_of(call, r), 0, {}}, 1, CALL_THREADS, 0);
        return copies() && !ranks[r].wrong.no_tokens ? launch_copy(call, r) : void();
    case ENTER:
        return queue(mm_call_enter, "mm_call_enter", enter_of(call, r), how.enter_ctas, ENTER_THREADS,
                     ENTER_SHARED_BYTES);
    case MEET:
        return queue(mm_call_meet, "mm_call_meet", call_params{group_of(call, r)}, 1, CALL_THREADS, 0);
    case COUNT:
        return queue(mm_count_slots, "mm_count_slots", plan_of(call, r), plan_ctas, plan_threads,
                     plan_count_shared_bytes(experts));
    case PLACE:
        return queue(mm_place_slots, "mm_place_slots", plan_of(call, r), plan_ctas, plan_threads,
                     plan_place_shared_bytes(experts, how.warps));
    case GIVE_UP:
        return queue(mm_call_stop, "mm_call_stop", call_params{group_of(call, r)}, 1, CALL_THREADS, 0);
    default:
        if (copies())
            gpus.wait(gpus.default_stream(r), ranks[r].copied);
        if (sums_on_ranks())
            return queue(mm_forward_grouped, "mm_forward_grouped", forward_of(call, r, stage == FORWARD_IF_ROOM),
                         how.ctas[r % how.ctas.size()], FUSED_THREADS, FORWARD_SMEM_BYTES);
        return queue(mm_forward, "mm_forward", forward_of(call, r, stage == FORWARD_IF_ROOM),
                     how.ctas[r % how.ctas.size()], FUSED_THREADS, FORWARD_SMEM_BYTES);
    }
}

void fused_group::launch(size_t call, unsigned rank, call_stage first, call_stage last) {
    for (int stage = first; stage <= last; stage++)
        if (!calls[call].backward || stage <= MEET || stage >= RESUME)
            launch_stage(call, rank, (call_stage)stage);
}

void fused_group::launch(size_t call, unsigned rank) {
    launch(call, rank, OPEN, calls[call].backward ? SPOIL : FORWARD);
}

void fused_group::launch_all(size_t call) {
    for (unsigned r = 0; r < how.world; r++)
        launch(call, r);
}

std::string fused_group::launch_growing(size_t call) {
    std::vector<sim::event> planned;
    for (unsigned r = 0; r < how.world; r++) {
        launch(call, r, OPEN, PLACE);
        planned.push_back(gpus.record(gpus.default_stream(r)));
        launch(call, r, FORWARD_IF_ROOM, FORWARD_IF_ROOM);
    }
    for (unsigned r = 0; r < how.world; r++) {
        while (!gpus.event_done(planned[r]))
            if (gpus.run(1000) == sim::state::faulted)
                return finish();
        const uint32_t rows = summary(r).padded_rows;
        if (rows <= ranks[r].row_room)
            continue;
        make_room(r, rows);
        launch(call, r, PLACE, FORWARD);
    }
    return "";
}
