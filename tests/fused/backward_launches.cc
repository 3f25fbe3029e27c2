/* The backwards of a group; see group.h. */
#include "group.h"
#include "kernels/tile_shape.h"
#include "maps.h"

extern "C" void mm_plan_resume(const resume_params &p);
extern "C" void mm_backward(const backward_params &p);
extern "C" void mm_wgrad_bf16(const wgrad_params &p);
extern "C" void mm_wgrad_f32(const wgrad_params &p);
extern "C" void mm_backward_end(const backward_end_params &p);

/* ---- Operands ---- */

/* Multiples of 1/8. */
float gradient_start(size_t element) {
    return (float)((int)(element * 37 % 65) - 32) / -8;
}

bool fused_group::wants(unsigned r, gradient which) const {
    return (how.omit[r % how.omit.size()] >> which & 1) == 0;
}

size_t fused_group::prepare_backward(size_t forward, const fused_batch &batch, unsigned char poison_with) {
    prepared_call call = {{}, poison_with, true};
    const size_t hidden = (size_t)layer.hidden, stack = local_experts() * matrix_elements();
    for (unsigned r = 0; r < how.world; r++) {
        rank_call c = calls[forward].ranks[r];
        const size_t values = c.tokens * hidden, slots = c.tokens * (size_t)layer.top_k;
        c.dy = copy_of(r, batch.dy.data() + (size_t)batch.first(r) * hidden, values);
        c.dx = room<uint16_t>(r, values);
        c.dweights = room<float>(r, slots);
        gpus.fill(c.dx, poison_with, values * sizeof *c.dx);
        gpus.fill(c.dweights, poison_with, slots * sizeof *c.dweights);
        for (unsigned char *&gradient : c.dweight) {
            gradient = room<unsigned char>(r, stack * gradient_bytes());
            gpus.fill(gradient, poison_with, stack * gradient_bytes());
        }
        for (size_t i = 0; i < 3 && how.accumulate; i++)
            write_start(c.dweight[i], stack);
        c.told = make_told(r);
        call.ranks.push_back(c);
    }
    calls.push_back(call);
    return calls.size() - 1;
}

void fused_group::write_start(unsigned char *gradient, size_t count) {
    std::vector<float> single;
    std::vector<uint16_t> narrow;
    for (size_t i = 0; i < count; i++) {
        single.push_back(gradient_start(i));
        narrow.push_back(to_bf16(gradient_start(i)));
    }
    gpus.write(gradient, how.narrow ? (const void *)narrow.data() : single.data(), count * gradient_bytes());
}

/* ---- Parameters ---- */

resume_params fused_group::resume_of(size_t call, unsigned r) const {
    const rank_memory &m = ranks[r];
    resume_params p = {};
    p.group = group_of(call, r);
    p.work = m.work;
    p.tables = m.tables;
    p.h_tiles = how.keep ? 0 : h_tiles + (uint32_t)m.wrong.h_tiles;
    p.dgrad_tiles = TILES_OF((uint32_t)layer.intermediate) + (uint32_t)m.wrong.dgrad_tiles;
    p.result_tiles = wants(r, DX) ? result_tiles + (uint32_t)m.wrong.result_tiles : 0;
    p.wants_dw = wants(r, DWEIGHTS) + (uint32_t)m.wrong.wants_dw;
    p.local_experts = (uint32_t)local_experts();
    return p;
}

backward_params fused_group::backward_of(size_t call, unsigned r) const {
    const rank_memory &m = ranks[r];
    const uint64_t h = (uint64_t)layer.hidden, i = (uint64_t)layer.intermediate;
    const unsigned char *up = m.gate_up + i * sizeof(uint16_t), *dup = m.dgrad + i * sizeof(uint16_t);
    backward_params p = {};
    p.call = fused_of(call, r);
    p.x = m.x_map;
    p.gate = m.gate;
    p.up = m.up;
    p.gate_out = m.gate_out;
    p.up_out = m.up_out;
    p.dy = rows_map(m.dy_rows, h, h, r, 128);
    p.down = m.down_by_columns;
    p.gate_in = rows_map(m.wrong.swapped_in ? up : m.gate_up, i, 2 * i, r, 128);
    p.up_in = rows_map(m.wrong.swapped_in ? m.gate_up : up, i, 2 * i, r, 128);
    p.dgate_out = rows_map(m.wrong.swapped ? dup : m.dgrad, i, 2 * i, r, 128);
    p.dup_out = rows_map(m.wrong.swapped ? m.dgrad : dup, i, 2 * i, r, 128);
    p.h_weighted = rows_map(m.h, i, i, r, 128);
    p.dw_parts = m.dw_parts;
    p.part_rows = m.row_room;
    p.dw = dw + m.wrong.dw;
    p.dgate_up = rows_map(m.dgrad, 2 * i, 2 * i, r, 128);
    p.gate_by_columns = m.gate_by_columns;
    p.up_by_columns = m.up_by_columns;
    p.redo = !how.keep;
    p.wants_weights = wants_weights(r);
    return p;
}

/* dW2, or dW1 and dW3, or one of those two. */
wgrad_params fused_group::wgrad_of(size_t call, unsigned r, bool is_down, bool closing) const {
    const rank_memory &m = ranks[r];
    const rank_call &c = calls[call].ranks[r];
    const uint64_t h = (uint64_t)layer.hidden, i = (uint64_t)layer.intermediate, rows = m.row_room;
    const auto blocks = [&](const void *pool, uint64_t columns, uint64_t pitch) {
        return map_of(pool, TENSOR_BF16, {64, rows, columns / 64}, {pitch, 64}, {64, 64, 2});
    };
    const auto out = [&](const unsigned char *gradient) {
        weight_map map = {};
        map.whole =
            map_of(gradient, how.narrow ? TENSOR_BF16 : TENSOR_F32, {is_down ? i : h, is_down ? h : i, local_experts()},
                   {is_down ? i : h, matrix_elements()}, {how.narrow ? 64u : 32u, 16, 1});
        return map;
    };
    const bool both = wants(r, DGATE) && wants(r, DUP);
    const uint64_t first = is_down || wants(r, DGATE) ? 0 : i * sizeof(uint16_t);
    wgrad_params p = {};
    p.a = is_down ? blocks(m.dy_rows, h, h) : blocks(m.dgrad + first, both ? 2 * i : i, 2 * i);
    p.b = is_down ? blocks(m.h, i, i) : blocks(m.x_rows, h, h);
    p.out[0] = out(c.dweight[is_down ? 2 : first > 0 ? 1 : 0]);
    p.out[1] = out(c.dweight[1]);
    p.segments = {m.tables.expert_offset, m.tables.expert_rows, (uint32_t)local_experts(), m.work.by_rows};
    p.m = (uint32_t)(is_down ? h : i);
    p.n = (uint32_t)(is_down ? i : h);
    p.outputs = !is_down && both ? 2 : 1;
    p.accumulate = how.accumulate;
    p.in_call = 1;
    p.closing = closing;
    p.call = fused_of(call, r);
    p.dx = end_of(call, r).dx;
    return p;
}

backward_end_params fused_group::end_of(size_t call, unsigned r) const {
    const rank_call &c = calls[call].ranks[r];
    backward_end_params p = {};
    p.call = fused_of(call, r);
    if (wants(r, DX))
        p.dx = {c.dx, {layer.hidden, 1}};
    if (wants(r, DWEIGHTS))
        p.dweights = {c.dweights, {layer.top_k, 1}};
    p.dw = dw;
    return p;
}

/* ---- Launches ---- */

/* As many clusters as the backward has CTAs, or half of them. */
void fused_group::launch_weights(size_t call, unsigned r, bool closing) {
    const unsigned ctas = how.backward_ctas[r % how.backward_ctas.size()], clusters = (ctas + 1) / 2;
    for (const bool is_down : {true, false}) {
        if (is_down ? !wants(r, DDOWN) : !wants(r, DGATE) && !wants(r, DUP))
            continue;
        const wgrad_params p = wgrad_of(call, r, is_down, closing);
        gpus.launch(gpus.default_stream(r),
                    sim::launch_of(how.narrow ? mm_wgrad_bf16 : mm_wgrad_f32,
                                   how.narrow ? "mm_wgrad_bf16" : "mm_wgrad_f32", p, clusters * CLUSTER_CTAS,
                                   CTA_THREADS, GEMM_SMEM_BYTES, CLUSTER_CTAS));
    }
}

void fused_group::launch_backward_stage(size_t call, unsigned r, call_stage stage) {
    const unsigned ctas = how.backward_ctas[r % how.backward_ctas.size()];
    const sim::stream stream = gpus.default_stream(r);
    switch (stage) {
    case RESUME: {
        const resume_params p = resume_of(call, r);
        const unsigned resume_ctas = (p.local_experts + RESUME_THREADS - 1) / RESUME_THREADS;
        return gpus.launch(stream, sim::launch_of(mm_plan_resume, "mm_plan_resume", p, resume_ctas, RESUME_THREADS, 0));
    }
    case ROWS: {
        const backward_params p = backward_of(call, r);
        struct sim::launch l = sim::launch_of(mm_backward, "mm_backward", p, ctas, FUSED_THREADS, BACKWARD_SMEM_BYTES);
        l.programmatic = how.programmatic;
        l.roles = {"load", "idle", "fetch", "store"};
        if (copies())
            gpus.wait(stream, ranks[r].copied);
        return gpus.launch(stream, l);
    }
    case WEIGHTS:
        return launch_weights(call, r, false);
    case END: {
        const backward_end_params p = end_of(call, r);
        return gpus.launch(stream, sim::launch_of(mm_backward_end, "mm_backward_end", p, ctas, BACKWARD_END_THREADS,
                                                  BACKWARD_END_SHARED_BYTES));
    }
    default:
        return how.accumulate ? void() : launch_weights(call, r, true);
    }
}
