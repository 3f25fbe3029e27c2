/* Groups of simulated GPUs and their forward calls. */
#include "group.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/fused_shape.h"

extern "C" void mm_call_open(const call_params &p);
extern "C" void mm_call_copy(const copy_params &p);
extern "C" void mm_call_enter(const enter_params &p);
extern "C" void mm_call_meet(const call_params &p);
extern "C" void mm_call_stop(const call_params &p);
extern "C" void mm_count_slots(const plan_params &p);
extern "C" void mm_place_slots(const plan_params &p);
extern "C" void mm_forward(const forward_params &p);

namespace {

const int64_t GAP = 64, ODD_GAP = 3; /* elements between two rows of y */

uint64_t aligned(uint64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

uint32_t padded(uint64_t rows) {
    return (uint32_t)((rows + PLAN_ROW_BLOCK - 1) / PLAN_ROW_BLOCK * PLAN_ROW_BLOCK);
}

/* Strides, from the second dimension on, are of elements. */
tensor_map map_of(const void *base, const std::vector<uint64_t> &size, const std::vector<uint64_t> &stride,
                  const std::vector<uint32_t> &box) {
    tensor_map_desc desc = {};
    desc.base = const_cast<void *>(base);
    desc.dims = (uint32_t)size.size();
    desc.element = TENSOR_BF16;
    desc.swizzle = TENSOR_SWIZZLE_128B;
    for (size_t i = 0; i < size.size(); i++) {
        desc.size[i] = size[i];
        desc.box[i] = box[i];
        if (i > 0)
            desc.stride[i - 1] = stride[i - 1] * sizeof(uint16_t);
    }
    tensor_map map;
    std::string why;
    if (!sim::encode_tensor_map(desc, &map, &why)) {
        std::printf("a map is refused: %s\n", why.c_str());
        std::exit(1);
    }
    return map;
}

} // namespace

fused_group::fused_group(const fused_layer &of, const group_options &group, const sim::options &machine)
    : layer(of), how(group), gpus(machine), h_tiles((uint32_t)(2 * of.intermediate + TILE_COLUMNS - 1) / TILE_COLUMNS),
      result_tiles((uint32_t)(of.hidden + TILE_COLUMNS - 1) / TILE_COLUMNS) {
    const uint64_t rows = (uint64_t)(group.world * group.max_tokens * of.top_k);
    const uint64_t local_experts = (uint64_t)of.experts / group.world;
    most_rows = padded(rows + local_experts * (PLAN_ROW_BLOCK - 1));
    lay_segments();
    ranks.resize(how.world);
    for (unsigned r = 0; r < how.world; r++)
        make_rank(r);
}

/* ---- Memory ---- */

template <class type> type *fused_group::room(unsigned rank, size_t count) {
    return (type *)gpus.allocate((int)rank, count * sizeof(type) + 1);
}

template <class type> type *fused_group::zeros(unsigned rank, size_t count) {
    type *memory = room<type>(rank, count);
    gpus.fill(memory, 0, count * sizeof(type));
    return memory;
}

template <class type> type *fused_group::copy_of(unsigned rank, const type *from, size_t count) {
    type *memory = room<type>(rank, count);
    if (count > 0)
        gpus.write(memory, from, count * sizeof(type));
    return memory;
}

/* Words that are all the same. */
void fused_group::count_from(void *memory, size_t bytes) {
    const std::vector<uint32_t> words(bytes / sizeof(uint32_t), how.counted);
    gpus.write(memory, words.data(), bytes);
}

void fused_group::lay_segments() {
    const uint64_t tokens = (uint64_t)how.max_tokens, slots = tokens * (uint64_t)layer.top_k;
    const uint64_t row_bytes = (uint64_t)layer.hidden * sizeof(uint16_t);
    x_slot = aligned(sizeof(call_control));
    ids_slot = x_slot + aligned(tokens * row_bytes);
    weights_slot = ids_slot + aligned(how.world * slots * sizeof(int32_t));
    combine = weights_slot + aligned(how.world * slots * sizeof(float));
    segment_bytes = combine + slots * row_bytes;
    for (unsigned r = 0; r < how.world; r++) {
        segments.push_back(room<unsigned char>(r, segment_bytes));
        gpus.fill(segments[r], 0, sizeof(call_control));
        count_from(segments[r], offsetof(call_control, stopped));
    }
}

void fused_group::make_rank(unsigned r) {
    rank_memory &m = ranks[r];
    const size_t experts = (size_t)layer.experts, local_experts = experts / how.world, blocks = most_rows / TILE_ROWS;
    const size_t slots = (size_t)(how.max_tokens * layer.top_k);
    m.state = zeros<call_state>(r, 1);
    count_from(&m.state->call, sizeof m.state->call);
    count_from(m.state->rows_target, sizeof m.state->rows_target);
    m.work.counters = room<work_counters>(r, 1);
    m.work.base = room<work_base>(r, 1);
    m.work.rows = {room<uint32_t>(r, blocks), room<uint32_t>(r, blocks)};
    m.work.h = {room<uint32_t>(r, blocks), room<uint32_t>(r, blocks)};
    count_from(m.work.counters, sizeof *m.work.counters);
    count_from(m.work.rows.now, blocks * sizeof *m.work.rows.now);
    count_from(m.work.h.now, blocks * sizeof *m.work.h.now);
    m.first_faults = room<uint32_t>(r, how.enter_ctas);
    m.ctas_done = zeros<uint32_t>(r, 1);
    m.ctas_copied = zeros<uint32_t>(r, 1);
    m.side = gpus.create_stream(r);
    m.chunk_counts = room<uint32_t>(r, how.world * how.chunks * experts);
    m.tables = {room<int32_t>(r, how.world),     room<int32_t>(r, how.world * experts),
                room<int64_t>(r, how.world),     room<int64_t>(r, how.world),
                room<int32_t>(r, local_experts), room<int32_t>(r, local_experts + 1),
                room<uint32_t>(r, how.world),    room<plan_summary>(r, 1)};
    m.slots = {room<int32_t>(r, slots), room<int32_t>(r, slots)};
    m.token_rows = room<int32_t>(r, how.world * slots);
    m.gate = map_weight(r, layer.gate, false);
    m.up = map_weight(r, layer.up, false);
    m.down = map_weight(r, layer.down, true);
    make_room(r, how.row_room != 0 ? how.row_room : most_rows);
}

/* Pools and the plan's rows. */
void fused_group::make_room(unsigned r, uint32_t rows) {
    rank_memory &m = ranks[r];
    const uint64_t h = (uint64_t)layer.hidden, i = (uint64_t)layer.intermediate;
    const uint32_t blocks = rows / TILE_ROWS;
    m.row_room = rows;
    m.x_rows = room<unsigned char>(r, rows * h * sizeof(uint16_t));
    m.h = room<unsigned char>(r, rows * i * sizeof(uint16_t));
    m.gate_up = room<unsigned char>(r, 2 * rows * i * sizeof(uint16_t));
    m.rows = {room<int32_t>(r, rows), room<int32_t>(r, rows),   room<int32_t>(r, rows),  room<int32_t>(r, rows),
              room<float>(r, rows),   room<int32_t>(r, blocks), room<int32_t>(r, blocks)};
    m.x_map = map_of(m.x_rows, {h, rows}, {h}, {64, 128});
    m.h_map = map_of(m.h, {i, rows}, {i}, {64, 128});
    m.h_out = map_of(m.h, {i, rows}, {i}, {64, 16});
    m.gate_out = map_of(m.gate_up, {i, rows}, {2 * i}, {64, 16});
    m.up_out = map_of(m.gate_up + i * sizeof(uint16_t), {i, rows}, {2 * i}, {64, 16});
}

/* The rank's own experts: one tensor, or one behind another in any order of their own. */
weight_map fused_group::map_weight(unsigned r, const std::vector<uint16_t> &weight, bool is_down) {
    const uint64_t h = (uint64_t)layer.hidden, i = (uint64_t)layer.intermediate;
    const uint64_t count = (uint64_t)layer.experts / how.world, expert = h * i;
    const uint16_t *own = weight.data() + r * count * expert;
    const auto describe = [&](const uint16_t *data, uint64_t experts) {
        return is_down ? map_of(data, {i, h, experts}, {i, expert}, {64, 128, 1})
                       : map_of(data, {h, i, experts}, {h, expert}, {64, 128, 1});
    };
    weight_map map = {};
    if (!how.map_an_expert) {
        map.whole = describe(copy_of(r, own, count * expert), count);
        return map;
    }
    std::vector<tensor_map> each;
    for (uint64_t e = 0; e < count; e++)
        each.push_back(describe(copy_of(r, own + e * expert, expert), 1));
    map.each = copy_of(r, each.data(), each.size());
    return map;
}

/* ---- One call ---- */

size_t fused_group::y_elements(const rank_call &call) const {
    return call.tokens * (size_t)(layer.hidden + GAP) + 1;
}

strided_matrix fused_group::y_matrix(const rank_call &call) const {
    switch (how.layout) {
    case y_layout::GAPS:
        return {call.y, {layer.hidden + GAP, 1}};
    case y_layout::ODD_GAPS:
        return {call.y + 1, {layer.hidden + ODD_GAP, 1}};
    case y_layout::COLUMNS:
        return {call.y, {1, call.tokens}};
    default:
        return {call.y, {layer.hidden, 1}};
    }
}

size_t fused_group::prepare(const fused_batch &batch, unsigned char poison_with) {
    prepared_call call = {{}, poison_with};
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
        c.told = (call_told *)gpus.allocate(-1, sizeof *c.told);
        gpus.fill(c.told, 0, sizeof *c.told);
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
    p.ids = {c.ids, {layer.top_k, 1}};
    p.weights = {c.weights, {layer.top_k, 1}};
    p.wide = 1;
    p.tokens = c.tokens;
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
    p.copies[0] = {{c.x, {layer.hidden, 1}}, x_slot};
    p.count = 1;
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
    const void *own_x = m.wrong.stale_x ? calls[call - 1].ranks[r].x : how.callers_x ? c.x : nullptr;
    fused_call p = {};
    p.group = group_of(call, r);
    p.work = m.work;
    p.rows = m.rows;
    p.tables = m.tables;
    p.slots = m.slots;
    p.token_rows = m.token_rows;
    p.token_stride = (uint64_t)how.max_tokens;
    p.fetched[0] = {x_slot, own_x, m.x_rows};
    p.fetched_count = 1;
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
    struct sim::launch l;
    const auto queue = [&](auto kernel, const char *name, const auto &p, unsigned ctas, unsigned threads,
                           size_t shared_bytes) {
        l = sim::launch_of(kernel, name, p, ctas, threads, shared_bytes);
        l.programmatic = how.programmatic;
        if (stage == FORWARD || stage == FORWARD_IF_ROOM)
            l.roles = {"load", "idle", "fetch", "store"};
        gpus.launch(gpus.default_stream(r), l);
    };
    const uint32_t experts = (uint32_t)layer.experts;
    const unsigned plan_ctas = how.world * how.chunks, plan_threads = 32 * how.warps;
    switch (stage) {
    case OPEN:
        queue(mm_call_open, "mm_call_open", call_params{group_of(call, r)}, 1, CALL_THREADS, 0);
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
        return queue(mm_forward, "mm_forward", forward_of(call, r, stage == FORWARD_IF_ROOM),
                     how.ctas[r % how.ctas.size()], FUSED_THREADS, FUSED_SMEM_BYTES);
    }
}

void fused_group::launch(size_t call, unsigned rank, call_stage first, call_stage last) {
    for (int stage = first; stage <= last; stage++)
        launch_stage(call, rank, (call_stage)stage);
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

void fused_group::poison(unsigned r, unsigned char value) {
    const rank_memory &m = ranks[r];
    const size_t rows = m.row_room, blocks = rows / TILE_ROWS, slots = (size_t)(how.max_tokens * layer.top_k);
    const size_t hidden = (size_t)layer.hidden * sizeof(uint16_t);
    const size_t intermediate = (size_t)layer.intermediate * sizeof(uint16_t);
    const struct {
        void *memory;
        size_t bytes;
    } all[] = {
        {m.x_rows, rows * hidden},
        {m.h, rows * intermediate},
        {m.gate_up, 2 * rows * intermediate},
        {segments[r] + combine, slots * hidden},
        {m.rows.source, 4 * rows},
        {m.rows.token, 4 * rows},
        {m.rows.slot, 4 * rows},
        {m.rows.primary, 4 * rows},
        {m.rows.weight, 4 * rows},
        {m.rows.block_expert, 4 * blocks},
        {m.rows.block_rows, 4 * blocks},
        {m.slots.row, 4 * slots},
        {m.slots.expert, 4 * slots},
        {m.token_rows, 4 * how.world * slots},
        {m.tables.slots_on, 4 * how.world},
        {m.tables.all, sizeof *m.tables.all},
        {m.work.rows.target, most_rows / TILE_ROWS * 4},
        {m.work.h.target, most_rows / TILE_ROWS * 4},
        {m.work.base, sizeof *m.work.base},
    };
    for (const auto &one : all)
        gpus.fill(gpus.default_stream(r), one.memory, value, one.bytes);
}

std::string fused_group::finish() {
    return gpus.finish() ? "" : sim::describe(gpus.reports().front());
}

/* ---- Results ---- */

call_told fused_group::told(size_t call, unsigned rank) {
    call_told told = {};
    gpus.read(&told, calls[call].ranks[rank].told, sizeof told);
    return told;
}

call_result fused_group::result(size_t call, unsigned rank) {
    const call_told all = told(call, rank);
    return all.failed.call != 0 ? all.failed : call_result{CALL_GOOD, 0, 0, all.ended};
}

std::vector<uint16_t> fused_group::y(size_t call, unsigned rank, bool *untouched) {
    const rank_call &c = calls[call].ranks[rank];
    const strided_matrix matrix = y_matrix(c);
    std::vector<uint16_t> memory(y_elements(c)), values;
    std::vector<bool> inside(memory.size());
    gpus.read(memory.data(), c.y, memory.size() * sizeof memory[0]);
    for (int64_t t = 0; t < c.tokens; t++)
        for (int64_t i = 0; i < layer.hidden; i++) {
            const size_t at = (size_t)((uint16_t *)matrix.data - c.y + t * matrix.stride[0] + i * matrix.stride[1]);
            values.push_back(memory[at]);
            inside[at] = true;
        }
    const uint16_t poison_value = (uint16_t)(calls[call].poison * 0x101);
    *untouched = true;
    for (size_t i = 0; i < memory.size(); i++)
        *untouched = *untouched && (inside[i] || memory[i] == poison_value);
    return values;
}

std::vector<uint16_t> fused_group::all_y(size_t call) {
    std::vector<uint16_t> all;
    for (unsigned r = 0; r < how.world; r++) {
        bool untouched;
        const std::vector<uint16_t> values = y(call, r, &untouched);
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

std::string fused_group::check_good(size_t call, unsigned rank, const fused_batch &batch,
                                    const std::vector<double> &expected) {
    const call_result was = result(call, rank);
    const std::string where = " of call " + std::to_string(call + 1) + " on rank " + std::to_string(rank);
    if (was.outcome != CALL_GOOD || was.call != number_of(call))
        return "told outcome " + std::to_string(was.outcome) + " of call number " + std::to_string(was.call) +
               ", expected a good end" + where;
    bool untouched;
    const std::vector<uint16_t> values = y(call, rank, &untouched);
    if (!untouched)
        return "memory between elements of y" + where + " was written";
    const double *own = expected.data() + batch.first(rank) * layer.hidden;
    for (size_t i = 0; layer.exact && i < values.size(); i++)
        if (values[i] != to_bf16(own[i]))
            return "y" + where + ", element " + std::to_string(i) + " is " + std::to_string(from_bf16(values[i])) +
                   ", expected " + std::to_string(own[i]);
    return "";
}

std::string fused_group::check_good(size_t call, const fused_batch &batch) {
    const std::vector<double> expected = oracle_of(layer, batch);
    std::string wrong;
    for (unsigned r = 0; r < how.world && wrong.empty(); r++)
        wrong = check_good(call, r, batch, expected);
    return wrong;
}

plan_summary fused_group::summary(unsigned rank) {
    plan_summary summary = {};
    gpus.read(&summary, ranks[rank].tables.all, sizeof summary);
    return summary;
}

namespace {

template <class type> std::vector<type> read_back(sim::machine &gpus, const void *from, size_t count) {
    std::vector<type> values(count);
    if (count > 0)
        gpus.read(values.data(), from, count * sizeof(type));
    return values;
}

bool all_zero(const uint16_t *values, int64_t count) {
    return std::all_of(values, values + count, [](uint16_t value) { return value == 0; });
}

double product(const uint16_t *a, const uint16_t *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += from_bf16(a[i]) * from_bf16(b[i]);
    return sum;
}

/* Whether a value is the sum rounded to bf16, fp32 sums in any order. */
bool rounds_to(double sum, uint16_t value) {
    return std::fabs(from_bf16(value) - sum) <= std::fabs(sum) / 256 * 1.01 + 1e-5;
}

} // namespace

std::string fused_group::check_kept(const fused_batch &batch) {
    const int64_t h = layer.hidden, i = layer.intermediate, local_experts = layer.experts / how.world;
    for (unsigned r = 0; r < how.world; r++) {
        const rank_memory &m = ranks[r];
        const size_t rows = summary(r).padded_rows;
        const auto x = read_back<uint16_t>(gpus, m.x_rows, rows * (size_t)h);
        const auto gate_up = read_back<uint16_t>(gpus, m.gate_up, 2 * rows * (size_t)i * how.keep);
        const auto source = read_back<int32_t>(gpus, m.rows.source, rows);
        const auto token = read_back<int32_t>(gpus, m.rows.token, rows);
        const auto block_expert = read_back<int32_t>(gpus, m.rows.block_expert, rows / TILE_ROWS);
        for (size_t row = 0; row < rows; row++) {
            const std::string where = " of row " + std::to_string(row) + " of rank " + std::to_string(r);
            const uint16_t *own_x = &x[row * (size_t)h];
            if (source[row] < 0) {
                if (!all_zero(own_x, h) || (how.keep && !all_zero(&gate_up[2 * row * (size_t)i], 2 * i)))
                    return "the pad" + where + " is not zero";
                continue;
            }
            const uint16_t *from = &batch.x[(size_t)((batch.first((unsigned)source[row]) + token[row]) * h)];
            if (memcmp(own_x, from, (size_t)h * sizeof *own_x) != 0)
                return "x" + where + " is not that of its token";
            const int64_t expert = r * local_experts + block_expert[row / TILE_ROWS];
            for (int64_t col = 0; how.keep && col < i; col++) {
                const size_t at = (size_t)((expert * i + col) * h);
                if (!rounds_to(product(from, &layer.gate[at], h), gate_up[2 * row * (size_t)i + (size_t)col]))
                    return "gate " + std::to_string(col) + where + " is wrong";
                if (!rounds_to(product(from, &layer.up[at], h), gate_up[(2 * row + 1) * (size_t)i + (size_t)col]))
                    return "up " + std::to_string(col) + where + " is wrong";
            }
        }
    }
    return "";
}

std::string fused_group::check_combine(const fused_batch &batch, unsigned char poison_with) {
    const size_t hidden = (size_t)layer.hidden, top_k = (size_t)layer.top_k;
    for (unsigned r = 0; r < how.world; r++) {
        const size_t slots = (size_t)how.max_tokens * top_k, used = (size_t)batch.tokens[r] * top_k;
        const auto values = read_back<uint16_t>(gpus, segments[r] + combine, slots * hidden);
        const auto row = read_back<int32_t>(gpus, ranks[r].slots.row, used);
        for (size_t slot = 0; slot < slots; slot++)
            if (slot >= used || row[slot] < 0)
                for (size_t col = 0; col < hidden; col++)
                    if (values[slot * hidden + col] != poison_with * 0x101)
                        return "combine slot " + std::to_string(slot) + " of rank " + std::to_string(r) +
                               " has no row and was written";
    }
    return "";
}
