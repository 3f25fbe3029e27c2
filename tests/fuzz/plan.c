/* Fuzz target: what works on descriptions alone, without a group: sizes, support, the routing plan.
 *
 * A legal small case is made first and then a few of its fields are replaced. Whatever comes out, a refusal has a
 * sentence and an accepted routing has a plan whose parts agree with one another. */
#include "input.h"
#include "megamoe.h"

enum { MAX_TOKENS = 6, MAX_K = 4, RANKS = MMOE_MAX_WORLD };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static mmoe_layer_config any_layer(struct input *input) {
    mmoe_layer_config layer = mmoe_layer_config_default();
    layer.hidden = 8;
    layer.intermediate = 8;
    layer.experts = 8;
    layer.top_k = 1 + input_below(input, MAX_K);
    for (int changes = input_below(input, 4); changes > 0; changes--) {
        int field = input_below(input, 12);
        if (field == 0)
            layer.hidden = input_number(input, layer.hidden);
        else if (field == 1)
            layer.intermediate = input_number(input, layer.intermediate);
        else if (field == 2)
            layer.experts = input_number(input, layer.experts);
        else if (field == 3)
            layer.top_k = input_number(input, layer.top_k);
        else if (field == 4)
            layer.weight_on = (mmoe_weight_on)(input_byte(input) % 4);
        else if (field == 5)
            layer.activation = (mmoe_activation)(input_byte(input) % 3);
        else if (field == 6)
            layer.limit = (float)input_number(input, 1) * 0.5f;
        else if (field == 7)
            layer.capacity_policy = (mmoe_capacity_policy)(input_byte(input) % 4);
        else if (field == 8)
            layer.capacity = input_number(input, 4);
        else if (field == 9)
            layer.drop = (int32_t)input_number(input, 1);
        else if (field == 10)
            layer.check_weights = (int32_t)input_number(input, 1);
        else
            layer.struct_size = (size_t)input_number(input, sizeof layer);
    }
    return layer;
}

static mmoe_group_config any_group(struct input *input) {
    static const char *const names[] = {NULL, "", "cpu", "none",
                                        "a name that is longer than any name of a group or of a "
                                        "backend has reason to be, so that it fits nowhere"};
    mmoe_group_config group = mmoe_group_config_default();
    group.max_tokens = MAX_TOKENS;
    group.max_hidden = 8;
    group.max_top_k = MAX_K;
    group.max_experts = 8;
    for (int changes = input_below(input, 4); changes > 0; changes--) {
        int field = input_below(input, 11);
        int64_t *const numbers[] = {&group.max_tokens,  &group.max_hidden,        &group.max_top_k,
                                    &group.max_experts, &group.arrive_timeout_ms, &group.progress_timeout_ms};
        if (field < 6)
            *numbers[field] = input_number(input, *numbers[field]);
        else if (field == 6)
            group.threads = (int32_t)input_number(input, 1);
        else if (field == 7)
            group.spare_multiprocessors = (int32_t)input_number(input, 1);
        else if (field == 8)
            group.backend = names[input_below(input, 5)];
        else if (field == 9)
            group.name = names[input_below(input, 5)];
        else
            group.struct_size = (size_t)input_number(input, sizeof group);
    }
    return group;
}

static void try_sizes(struct input *input, const mmoe_layer_config *layer) {
    mmoe_group_config group = any_group(input);
    int world = (int)input_number(input, 2);
    int64_t tokens = input_number(input, MAX_TOKENS), rows = input_number(input, 0);
    mmoe_keep keep = (mmoe_keep)(input_byte(input) % 3);

    size_t segment = mmoe_group_segment_bytes(&group, world);
    REQUIRE(segment > 0 || mmoe_last_error()[0] != '\0');
    mmoe_sizes sizes;
    memset(&sizes, 0x5a, sizeof sizes);
    mmoe_sizes before = sizes;
    mmoe_status status = mmoe_sizes_of(&group, layer, world, tokens, rows, keep, &sizes);
    if (status == MMOE_OK)
        REQUIRE(sizes.segment == segment && sizes.segment > 0);
    else
        REQUIRE(memcmp(&sizes, &before, sizeof sizes) == 0 && mmoe_last_error()[0] != '\0');
}

static void check_plan(const mmoe_plan *plan, const mmoe_layer_config *layer, int rank, int world) {
    REQUIRE(plan->rank == rank && plan->world == world && plan->experts == layer->experts);
    REQUIRE(plan->local_experts == layer->experts / world);
    int64_t kept = 0, pads = 0, counted = 0;
    for (int e = 0; e < plan->local_experts; e++) {
        REQUIRE(plan->expert_offset[e] % MMOE_ROW_BLOCK == 0 && plan->expert_rows[e] >= 0);
        REQUIRE(plan->expert_offset[e] + plan->expert_rows[e] <= plan->expert_offset[e + 1]);
        kept += plan->expert_rows[e];
    }
    REQUIRE(kept == plan->rows && plan->expert_offset[plan->local_experts] == plan->padded_rows);
    REQUIRE(plan->demand[rank] - plan->dropped[rank] == plan->rows);
    for (int r = 0; r < world; r++)
        for (int e = 0; e < plan->experts; e++)
            counted += plan->counts[(int64_t)r * plan->experts + e];
    for (int r = 0; r < world; r++)
        counted -= plan->demand[r];
    REQUIRE(counted == 0);
    for (int64_t row = 0; row < plan->padded_rows; row++)
        pads += plan->row_source[row] < 0;
    REQUIRE(pads == plan->padded_rows - plan->rows);
    int64_t own = 0;
    for (int64_t slot = 0; slot < (int64_t)plan->tokens[rank] * plan->top_k; slot++)
        own += plan->slot_row[slot] >= 0;
    REQUIRE(own == plan->slots);
}

static void try_plan(struct input *input, const mmoe_layer_config *layer) {
    int32_t narrow[MAX_TOKENS * MAX_K];
    int64_t wide[MAX_TOKENS * MAX_K];
    for (int i = 0; i < MAX_TOKENS * MAX_K; i++)
        narrow[i] = (int32_t)(wide[i] = input_byte(input) < 250 ? input_below(input, 9) - 1 : input_number(input, 0));

    /* All ranks read the same ids; a legal shape never reaches past them. */
    int64_t top_k = layer->top_k >= 1 && layer->top_k <= MAX_K ? layer->top_k : 1;
    mmoe_tensor ids[RANKS];
    for (int r = 0; r < RANKS; r++)
        ids[r] = r % 2 == 0 ? mmoe_matrix(narrow, MMOE_I32, input_below(input, MAX_TOKENS + 1), top_k)
                            : mmoe_matrix(wide, MMOE_I64, input_below(input, MAX_TOKENS + 1), top_k);
    if (input_below(input, 8) == 7) {
        mmoe_tensor *one = &ids[input_below(input, 2)];
        *one = (mmoe_tensor){.data = input_below(input, 2) ? narrow : NULL,
                             .dtype = (mmoe_dtype)input_below(input, 6),
                             .dims = (int32_t)input_number(input, 2),
                             .shape = {0, input_number(input, top_k), 1},
                             .stride = {input_number(input, top_k), input_number(input, 1), 0}};
    }

    int worlds[] = {1, 2, 4, 8, (int)input_number(input, 3)};
    int world = worlds[input_below(input, 5)];
    int rank = world > 0 ? input_below(input, world < 100 ? world : 100) : 0;
    if (input_below(input, 16) == 15)
        rank = (int)input_number(input, world);
    mmoe_plan *plan = (mmoe_plan *)(void *)narrow;
    mmoe_status status = mmoe_plan_create(layer, rank, world, ids, &plan);
    if (status == MMOE_OK)
        check_plan(plan, layer, rank, world);
    else
        REQUIRE(plan == NULL && mmoe_last_error()[0] != '\0');
    mmoe_plan_destroy(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct input input = {bytes, bytes + n};
    mmoe_layer_config layer = any_layer(&input);
    const char *reason =
        mmoe_unsupported_reason(input_below(&input, 4) ? NULL : "cpu", &layer, (int)input_number(&input, 2));
    REQUIRE(reason == NULL || reason[0] != '\0');
    try_sizes(&input, &layer);
    try_plan(&input, &layer);
    return 0;
}
