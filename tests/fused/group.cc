/* Groups of simulated GPUs: set-up and memory; see group.h. */
#include "group.h"

#include <cstddef>

#include "kernels/fused_shape.h"
#include "maps.h"

namespace {

uint64_t aligned(uint64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

uint32_t padded(uint64_t rows) {
    return (uint32_t)((rows + PLAN_ROW_BLOCK - 1) / PLAN_ROW_BLOCK * PLAN_ROW_BLOCK);
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

/* Words that are all the same. */
void fused_group::count_from(void *memory, size_t bytes) {
    const std::vector<uint32_t> words(bytes / sizeof(uint32_t), how.counted);
    gpus.write(memory, words.data(), bytes);
}

void fused_group::lay_segments() {
    const uint64_t tokens = (uint64_t)how.max_tokens, slots = tokens * (uint64_t)layer.top_k;
    const uint64_t row_bytes = (uint64_t)layer.hidden * sizeof(uint16_t);
    x_slot = aligned(sizeof(call_control));
    dy_slot = x_slot + aligned(tokens * row_bytes);
    ids_slot = dy_slot + aligned(tokens * row_bytes);
    weights_slot = ids_slot + aligned(how.world * slots * sizeof(int32_t));
    combine = weights_slot + aligned(how.world * slots * sizeof(float));
    dw = combine + aligned(slots * row_bytes);
    segment_bytes = dw + slots * sizeof(float);
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
    count_from(m.state->dw_target, sizeof m.state->dw_target);
    m.work.counters = room<work_counters>(r, 1);
    m.work.base = room<work_base>(r, 1);
    m.work.rows = {room<uint32_t>(r, blocks), room<uint32_t>(r, blocks)};
    m.work.h = {room<uint32_t>(r, blocks), room<uint32_t>(r, blocks)};
    m.work.dgrad = {room<uint32_t>(r, blocks), room<uint32_t>(r, blocks)};
    m.work.results = {room<uint32_t>(r, blocks), room<uint32_t>(r, blocks)};
    m.work.by_rows = room<uint32_t>(r, local_experts);
    count_from(m.work.counters, sizeof *m.work.counters);
    count_from(m.work.rows.now, blocks * sizeof *m.work.rows.now);
    count_from(m.work.h.now, blocks * sizeof *m.work.h.now);
    count_from(m.work.dgrad.now, blocks * sizeof *m.work.dgrad.now);
    count_from(m.work.results.now, blocks * sizeof *m.work.results.now);
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
    m.gate = map_weight(r, layer.gate, false, false);
    m.up = map_weight(r, layer.up, false, false);
    m.down = map_weight(r, layer.down, true, false);
    m.gate_by_columns = map_weight(r, layer.gate, false, true);
    m.up_by_columns = map_weight(r, layer.up, false, true);
    m.down_by_columns = map_weight(r, layer.down, true, true);
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
    m.dy_rows = room<unsigned char>(r, rows * h * sizeof(uint16_t));
    m.dgrad = room<unsigned char>(r, 2 * rows * i * sizeof(uint16_t));
    m.dw_parts = room<float>(r, rows * TILES_OF((uint32_t)layer.intermediate));
    m.rows = {room<int32_t>(r, rows), room<int32_t>(r, rows),   room<int32_t>(r, rows),  room<int32_t>(r, rows),
              room<float>(r, rows),   room<int32_t>(r, blocks), room<int32_t>(r, blocks)};
    m.x_map = rows_map(m.x_rows, h, h, r, 128);
    m.h_map = rows_map(m.h, i, i, r, 128);
    m.h_out = rows_map(m.h, i, i, r, 16);
    m.gate_out = rows_map(m.gate_up, i, 2 * i, r, 16);
    m.up_out = rows_map(m.gate_up + i * sizeof(uint16_t), i, 2 * i, r, 16);
}

/* Columns of a pool's rows. */
tensor_map fused_group::rows_map(const void *pool, uint64_t columns, uint64_t pitch, unsigned r,
                                 uint32_t box_rows) const {
    return map_of(pool, TENSOR_BF16, {columns, ranks[r].row_room}, {pitch}, {64, box_rows});
}

/* The rank's own experts: one tensor, or one behind another in any order of their own. */
weight_map fused_group::map_weight(unsigned r, const std::vector<uint16_t> &weight, bool is_down, bool by_columns) {
    const uint64_t rows = (uint64_t)(is_down ? layer.hidden : layer.intermediate);
    const uint64_t columns = (uint64_t)(is_down ? layer.intermediate : layer.hidden);
    const uint64_t count = local_experts(), expert = matrix_elements();
    const uint16_t *own = weight.data() + r * count * expert;
    const auto describe = [&](const uint16_t *data, uint64_t experts) {
        return by_columns
                   ? map_of(data, TENSOR_BF16, {64, rows, columns / 64, experts}, {columns, 64, expert}, {64, 64, 2, 1})
                   : map_of(data, TENSOR_BF16, {columns, rows, experts}, {columns, expert}, {64, 128, 1});
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

/* ---- Poison ---- */

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
        {m.dy_rows, rows * hidden},
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
        {m.work.results.target, most_rows / TILE_ROWS * 4},
        {m.work.base, sizeof *m.work.base},
    };
    for (const auto &one : all)
        gpus.fill(gpus.default_stream(r), one.memory, value, one.bytes);
}

void fused_group::poison_for_backward(unsigned r, unsigned char value) {
    const rank_memory &m = ranks[r];
    const size_t rows = m.row_room, slots = (size_t)(how.max_tokens * layer.top_k);
    const size_t hidden = (size_t)layer.hidden * sizeof(uint16_t);
    const size_t intermediate = (size_t)layer.intermediate * sizeof(uint16_t);
    const struct {
        void *memory;
        size_t bytes;
    } all[] = {
        {m.x_rows, how.keep ? 0 : rows * hidden},
        {m.gate_up, how.keep ? 0 : 2 * rows * intermediate},
        {m.dy_rows, rows * hidden},
        {m.h, rows * intermediate},
        {m.dgrad, 2 * rows * intermediate},
        {m.dw_parts, rows * TILES_OF((uint32_t)layer.intermediate) * sizeof(float)},
        {segments[r] + combine, slots * hidden},
        {segments[r] + dw, slots * sizeof(float)},
        {m.work.rows.target, most_rows / TILE_ROWS * 4},
        {m.work.h.target, most_rows / TILE_ROWS * 4},
        {m.work.dgrad.target, most_rows / TILE_ROWS * 4},
        {m.work.base, sizeof *m.work.base},
        {m.work.by_rows, local_experts() * 4},
    };
    for (const auto &one : all)
        if (one.bytes > 0)
            gpus.fill(gpus.default_stream(r), one.memory, value, one.bytes);
}
