/* Plans made on a device; see device_plan.h. */
#include "device_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64 /* at least, after each array */

/* An array of the block, by where its address stands in the parameters. The inputs come first. */
struct array {
    enum { INPUT, SCRATCH, TABLE, ROWS, BLOCKS, SLOTS } kind;
    const char *name;
    size_t parameter; /* offset in struct plan_params */
    size_t bytes, element;
};

enum { INPUTS = 8, ARRAYS = 31, STATE = 3 };

static void *take(size_t bytes) {
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

static void draw_words(struct rig_random *random, void *to, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint32_t)) {
        const uint32_t word = (uint32_t)rig_next(random);
        memcpy((char *)to + at, &word, sizeof word);
    }
}

/* Counters may stand anywhere, also shortly before they wrap. */
static void draw_work(struct plan_case *c, struct rig_random *random) {
    const size_t blocks = c->row_room / PLAN_ROW_BLOCK;
    c->rows_in = take(blocks * sizeof *c->rows_in);
    c->h_in = take(blocks * sizeof *c->h_in);
    c->results_in = take(blocks * sizeof *c->results_in);
    draw_words(random, c->rows_in, blocks * sizeof *c->rows_in);
    draw_words(random, c->h_in, blocks * sizeof *c->h_in);
    draw_words(random, c->results_in, blocks * sizeof *c->results_in);
    draw_words(random, &c->counters, sizeof c->counters);
    draw_words(random, &c->state, sizeof c->state);
    c->h_tiles = 1 + (uint32_t)rig_below(random, 40);
    c->result_tiles = 1 + (uint32_t)rig_below(random, 40);
}

void plan_case_draw(struct plan_case *c, enum rig_routing kind, struct rig_random *random, uint32_t multiprocessors) {
    const int64_t top_k = c->shape.top_k, stride = c->max_tokens * top_k;
    c->ids = take((size_t)(c->shape.world * stride) * sizeof *c->ids);
    c->weights = take((size_t)(c->shape.world * stride) * sizeof *c->weights);
    int64_t *drawn = take((size_t)stride * sizeof *drawn);
    for (int r = 0; r < c->shape.world; r++) {
        rig_route(kind, random, c->tokens[r], top_k, c->shape.experts, drawn);
        for (int64_t slot = 0; slot < stride; slot++) {
            uint32_t bits = (uint32_t)rig_next(random);
            memcpy(&c->weights[r * stride + slot], &bits, sizeof bits);
            /* What lies behind a rank's last token must not be looked at. */
            c->ids[r * stride + slot] = slot < c->tokens[r] * top_k ? (int32_t)drawn[slot] : 0;
        }
    }
    free(drawn);
    c->chunks = plan_chunks(multiprocessors, (uint32_t)c->shape.world);
    c->warps = plan_warps((uint32_t)c->shape.experts);
    c->row_room = (uint32_t)mm_padded_rows_bound(c->shape.world * stride, c->shape.experts / c->shape.world);
    draw_work(c, random);
}

void plan_case_random(struct plan_case *c, uint64_t seed, uint32_t multiprocessors, int64_t most_tokens) {
    struct rig_random random = rig_seed(seed);
    const int world = 1 + (int)rig_below(&random, 8), few = rig_below(&random, 4) > 0;
    const enum rig_routing kind = (enum rig_routing)(seed % (RIG_HOLES + 1));
    int64_t slots = 0;
    *c = (struct plan_case){.shape = {.world = world, .rank = (int)rig_below(&random, world)}};
    c->shape.experts = world * (1 + (int)rig_below(&random, few ? 6 : 512 / world));
    c->shape.top_k = 1 + (int)rig_below(&random, rig_below(&random, 6) == 0 ? MMOE_MAX_TOP_K : 16);
    c->max_tokens = rig_below(&random, few ? most_tokens / 8 + 1 : most_tokens + 1);
    for (int r = 0; r < world; r++) {
        c->tokens[r] = rig_below(&random, 5) == 0 ? 0 : (int32_t)rig_below(&random, c->max_tokens + 1);
        slots += c->tokens[r] * c->shape.top_k;
    }
    c->shape.drop = rig_below(&random, 3) == 0;
    c->shape.capacity =
        c->shape.drop || rig_below(&random, 3) == 0 ? rig_below(&random, 2 * slots / world + 2) : MM_NO_CAPACITY;
    plan_case_draw(c, kind, &random, 1 + (uint32_t)rig_below(&random, multiprocessors));
    c->warps = 1 + (uint32_t)rig_below(&random, c->warps);
    if (rig_below(&random, 6) == 0)
        c->row_room = (uint32_t)rig_below(&random, c->row_room / PLAN_ROW_BLOCK + 1) * PLAN_ROW_BLOCK;
}

void plan_case_free(struct plan_case *c) {
    free(c->ids);
    free(c->weights);
    free(c->rows_in);
    free(c->h_in);
    free(c->results_in);
}

static void list_arrays(const struct plan_case *c, struct array list[ARRAYS]) {
    const size_t world = (size_t)c->shape.world, experts = (size_t)c->shape.experts, room = c->row_room;
    const size_t slots = (size_t)(c->max_tokens * c->shape.top_k), local_experts = experts / world;
    const size_t blocks = room / PLAN_ROW_BLOCK;
#define ARRAY(kind, member, count)                                                                                     \
    {                                                                                                                  \
        kind, #member, offsetof(struct plan_params, member), (count) * sizeof *((struct plan_params *)0)->member,      \
            sizeof *((struct plan_params *)0)->member                                                                  \
    }
    const struct array all[ARRAYS] = {
        ARRAY(INPUT, tokens, world),
        ARRAY(INPUT, ids, world * slots),
        ARRAY(INPUT, weights, world * slots),
        ARRAY(INPUT, state, 1),
        ARRAY(INPUT, work.counters, 1),
        ARRAY(INPUT, work.rows.now, blocks),
        ARRAY(INPUT, work.h.now, blocks),
        ARRAY(INPUT, work.results.now, blocks),
        ARRAY(SCRATCH, chunk_counts, world * c->chunks * experts),
        ARRAY(TABLE, tables.tokens, world),
        ARRAY(TABLE, tables.counts, world * experts),
        ARRAY(TABLE, tables.demand, world),
        ARRAY(TABLE, tables.dropped, world),
        ARRAY(TABLE, tables.expert_rows, local_experts),
        ARRAY(TABLE, tables.expert_offset, local_experts + 1),
        ARRAY(TABLE, tables.slots_on, world),
        ARRAY(TABLE, tables.all, 1),
        ARRAY(ROWS, rows.source, room),
        ARRAY(ROWS, rows.token, room),
        ARRAY(ROWS, rows.slot, room),
        ARRAY(ROWS, rows.primary, room),
        ARRAY(ROWS, rows.weight, room),
        ARRAY(BLOCKS, rows.block_expert, blocks),
        ARRAY(BLOCKS, rows.block_rows, blocks),
        ARRAY(SLOTS, slots.row, slots),
        ARRAY(SLOTS, slots.expert, slots),
        ARRAY(TABLE, token_rows, world * slots),
        ARRAY(TABLE, work.base, 1),
        ARRAY(BLOCKS, work.rows.target, blocks),
        ARRAY(BLOCKS, work.h.target, blocks),
        ARRAY(BLOCKS, work.results.target, blocks),
    };
#undef ARRAY
    memcpy(list, all, sizeof all);
}

static size_t after(size_t offset, const struct array *array) {
    return mm_align(offset + array->bytes + GUARD_BYTES);
}

size_t plan_case_input_bytes(const struct plan_case *c) {
    struct array list[ARRAYS];
    size_t offset = 0;
    list_arrays(c, list);
    for (int i = 0; i < INPUTS; i++)
        offset = after(offset, &list[i]);
    return offset;
}

size_t plan_case_place(const struct plan_case *c, void *base, struct plan_params *params) {
    struct array list[ARRAYS];
    size_t offset = 0;
    list_arrays(c, list);
    *params = (struct plan_params){
        .world = (uint32_t)c->shape.world,
        .rank = (uint32_t)c->shape.rank,
        .experts = (uint32_t)c->shape.experts,
        .top_k = (uint32_t)c->shape.top_k,
        .chunks = c->chunks,
        .warps = c->warps,
        .capacity = c->shape.capacity < PLAN_NO_CAPACITY ? (uint32_t)c->shape.capacity : PLAN_NO_CAPACITY,
        .drop = (uint32_t)c->shape.drop,
        .row_room = c->row_room,
        .rank_stride = (uint64_t)(c->max_tokens * c->shape.top_k),
        .token_stride = (uint64_t)c->max_tokens,
        .h_tiles = c->h_tiles,
        .result_tiles = c->result_tiles,
    };
    for (int i = 0; i < ARRAYS; i++) {
        char *address = (char *)base + offset;
        memcpy((char *)params + list[i].parameter, &address, sizeof address);
        offset = after(offset, &list[i]);
    }
    return offset;
}

static void list_inputs(const struct plan_case *c, const void *inputs[INPUTS]) {
    const void *const all[INPUTS] = {c->tokens,    c->ids,     c->weights, &c->state,
                                     &c->counters, c->rows_in, c->h_in,    c->results_in};
    memcpy(inputs, all, sizeof all);
}

void plan_case_write_inputs(const struct plan_case *c, void *block) {
    struct array list[ARRAYS];
    const void *inputs[INPUTS];
    list_arrays(c, list);
    list_inputs(c, inputs);
    char *at = block;
    memset(block, 0, plan_case_input_bytes(c));
    for (int i = 0; i < INPUTS; i++) {
        memcpy(at, inputs[i], list[i].bytes);
        at += after(0, &list[i]);
    }
}

/* The host's plan as the device is to give it. */
struct expected {
    struct mm_plan plan;
    bool filled; /* else the capacity was exceeded, and rows and slots are whatever they are */
    bool fits;   /* else there is no room for the rows, and none were written */
    int32_t *own_ids, *block_expert, *block_rows;
    int32_t *token_rows; /* with poison where nothing is written */
    uint32_t slots_on[PLAN_MAX_WORLD];
    struct plan_summary all;
    struct call_state state;
    struct work_base base;
    uint32_t *rows_target, *h_target, *results_target;
};

static void check(mmoe_status status) {
    if (status != MMOE_OK) {
        fprintf(stderr, "%s\n", mmoe_last_error());
        exit(1);
    }
}

static void make_plan(struct expected *e, const struct plan_case *c) {
    const int32_t *ids[PLAN_MAX_WORLD];
    const float *weights[PLAN_MAX_WORLD];
    for (int r = 0; r < c->shape.world; r++) {
        ids[r] = c->ids + r * c->max_tokens * c->shape.top_k;
        weights[r] = c->weights + r * c->max_tokens * c->shape.top_k;
    }
    check(mm_plan_count(&e->plan, &c->shape, c->tokens, ids));
    e->filled = mm_plan_verdict(&e->plan) == MMOE_OK;
    if (e->filled)
        check(mm_plan_fill(&e->plan, c->tokens, ids, weights));
}

static void make_summary(struct expected *e, const struct plan_case *c) {
    const mmoe_plan *view = &e->plan.view;
    const int64_t own = (int64_t)c->shape.rank * c->shape.experts;
    int64_t used = 0, kept = 0;
    for (int expert = 0; expert < c->shape.experts; expert++)
        used += view->counts[own + expert];
    for (int r = 0; r < c->shape.world; r++)
        kept += e->slots_on[r] = (uint32_t)mm_plan_rows_between(&e->plan, c->shape.rank, r);
    e->all = (struct plan_summary){.rows = (uint32_t)view->rows,
                                   .padded_rows = (uint32_t)view->padded_rows,
                                   .slots = (uint32_t)kept,
                                   .slots_dropped = (uint32_t)(used - kept),
                                   .over_rank = -1,
                                   .call = c->state.call};
    for (int r = c->shape.world - 1; !e->filled && r >= 0; r--)
        if (view->demand[r] > c->shape.capacity) {
            e->all.over_rank = r;
            e->all.over_demand = (uint32_t)view->demand[r];
        }
}

static void make_blocks(struct expected *e) {
    const mmoe_plan *view = &e->plan.view;
    for (int32_t local = 0; local < view->local_experts; local++)
        for (int32_t row = 0; row < view->expert_rows[local]; row++) {
            const int32_t block = (view->expert_offset[local] + row) / MMOE_ROW_BLOCK;
            e->block_expert[block] = local;
            e->block_rows[block]++;
        }
}

/* Rows of all ranks' slots on this rank: the row map inverted. */
static void make_token_rows(struct expected *e, const struct plan_case *c, unsigned char poison) {
    const mmoe_plan *view = &e->plan.view;
    const int64_t top_k = c->shape.top_k, stride = c->max_tokens * top_k;
    memset(e->token_rows, poison, (size_t)(c->shape.world * stride) * sizeof *e->token_rows);
    for (int r = 0; r < c->shape.world; r++)
        for (int64_t slot = 0; slot < c->tokens[r] * top_k; slot++)
            e->token_rows[r * stride + slot] = -1;
    for (int64_t row = 0; e->filled && e->fits && row < view->padded_rows; row++)
        if (view->row_source[row] >= 0)
            e->token_rows[view->row_source[row] * stride + view->row_token[row] * top_k + view->row_slot[row]] =
                (int32_t)row;
}

/* What a fused forward is told. */
static void make_work(struct expected *e, const struct plan_case *c) {
    const size_t blocks = e->all.padded_rows / PLAN_ROW_BLOCK;
    e->base = (struct work_base){.task = c->counters.task.value,
                                 .fetch = c->counters.fetch.value,
                                 .fetched = c->counters.fetched.value,
                                 .sum = c->counters.sum.value,
                                 .group = c->counters.group.value,
                                 .ended = c->counters.ended.value};
    for (size_t block = 0; e->fits && block < blocks; block++) {
        e->rows_target[block] = c->rows_in[block] + PLAN_ROW_BLOCK;
        e->h_target[block] = c->h_in[block] + c->h_tiles;
        e->results_target[block] = c->results_in[block] + c->result_tiles;
    }
    e->state = c->state;
    for (int r = 0; e->filled && e->fits && r < c->shape.world; r++)
        e->state.rows_target[r] += e->slots_on[r] * c->result_tiles;
    if (!e->filled) {
        e->state.result.outcome = CALL_CAPACITY;
        e->state.result.rank = (uint32_t)e->all.over_rank;
        e->state.result.rows = e->all.over_demand;
    }
}

/* The first word of an array that differs, and the first byte between it and the next one that is no poison. */
static bool same_array(const struct array *array, const unsigned char *got, const void *expected, size_t written,
                       unsigned char poison) {
    for (size_t at = 0; expected != NULL && at < written; at += sizeof(int32_t)) {
        int32_t is, should;
        memcpy(&is, got + at, sizeof is);
        memcpy(&should, (const char *)expected + at, sizeof should);
        if (is != should) {
            printf("%s, word %zu is %" PRId32 " (%#" PRIx32 "), expected %" PRId32 "\n", array->name,
                   at / sizeof(int32_t), is, (uint32_t)is, should);
            return false;
        }
    }
    for (size_t i = written; i < after(0, array); i++)
        if (got[i] != poison) {
            printf("%s: byte %zu was written, expected %zu bytes alone\n", array->name, i, written);
            return false;
        }
    return true;
}

/* What the kernels write of an array. */
static size_t written_bytes(const struct plan_case *c, const struct expected *e, const struct array *array) {
    const size_t padded_rows = e->fits ? e->all.padded_rows : 0;
    switch (array->kind) {
    case ROWS:
        return padded_rows * array->element;
    case BLOCKS:
        return padded_rows / PLAN_ROW_BLOCK * array->element;
    case SLOTS:
        return (size_t)(c->tokens[c->shape.rank] * c->shape.top_k) * array->element;
    default:
        return array->bytes;
    }
}

/* Inputs as they were, and the state as it should be. Ids and weights may lie elsewhere. */
static bool same_inputs(const struct plan_case *c, const struct expected *e, const char *block) {
    struct array list[ARRAYS];
    const void *inputs[INPUTS];
    list_arrays(c, list);
    list_inputs(c, inputs);
    inputs[STATE] = &e->state;
    for (int i = 0; i < INPUTS; i++) {
        const bool ids_or_weights = inputs[i] == c->ids || inputs[i] == c->weights;
        if (!ids_or_weights && !same_array(&list[i], (const unsigned char *)block, inputs[i], list[i].bytes, 0))
            return false;
        block += after(0, &list[i]);
    }
    return true;
}

static bool same_arrays(const struct plan_case *c, const struct expected *e, const char *block, unsigned char poison) {
    const mmoe_plan *view = &e->plan.view;
    struct array list[ARRAYS];
    list_arrays(c, list);
    /* NULL: any contents. */
    const void *const expected[ARRAYS - INPUTS] = {
        NULL,
        view->tokens,
        view->counts,
        view->demand,
        view->dropped,
        view->expert_rows,
        view->expert_offset,
        e->slots_on,
        &e->all,
        view->row_source,
        view->row_token,
        view->row_slot,
        view->row_primary,
        view->row_weight,
        e->block_expert,
        e->block_rows,
        view->slot_row,
        e->filled ? e->own_ids : NULL,
        e->filled ? e->token_rows : NULL,
        &e->base,
        e->rows_target,
        e->h_target,
        e->results_target,
    };
    block += plan_case_input_bytes(c);
    for (int i = INPUTS; i < ARRAYS; i++) {
        const size_t written = written_bytes(c, e, &list[i]);
        if (!same_array(&list[i], (const unsigned char *)block, expected[i - INPUTS], written, poison))
            return false;
        block += after(0, &list[i]);
    }
    return true;
}

bool plan_case_compare(const struct plan_case *c, const void *block, unsigned char poison) {
    struct expected e = {.filled = false};
    make_plan(&e, c);
    const size_t blocks = (size_t)e.plan.view.padded_rows / MMOE_ROW_BLOCK;
    const size_t slots = (size_t)(c->shape.world * c->max_tokens * c->shape.top_k);
    e.fits = e.plan.view.padded_rows <= c->row_room;
    e.own_ids = c->ids + c->shape.rank * c->max_tokens * c->shape.top_k;
    e.block_expert = take(blocks * sizeof *e.block_expert);
    e.block_rows = take(blocks * sizeof *e.block_rows);
    e.token_rows = take(slots * sizeof *e.token_rows);
    e.rows_target = take(blocks * sizeof *e.rows_target);
    e.h_target = take(blocks * sizeof *e.h_target);
    e.results_target = take(blocks * sizeof *e.results_target);
    make_blocks(&e);
    make_summary(&e, c);
    make_token_rows(&e, c, poison);
    make_work(&e, c);
    const bool same = same_inputs(c, &e, block) && same_arrays(c, &e, block, poison);
    free(e.block_expert);
    free(e.block_rows);
    free(e.token_rows);
    free(e.rows_target);
    free(e.h_target);
    free(e.results_target);
    mm_plan_free(&e.plan);
    return same;
}
