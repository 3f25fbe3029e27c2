/* The grouped products one at a time; see bench.h. */
#include "bench.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "cuda/products.h"

enum operand { X, DY, OUT, GATE_UP, DGRAD, H, ROW_WEIGHT, DW_PARTS, W13, W2, DW13, DW2, OPERANDS };

static const char *const operand_names[OPERANDS] = {
    [X] = "x",
    [DY] = "dy",
    [OUT] = "out",
    [GATE_UP] = "gate_up",
    [DGRAD] = "dgrad",
    [H] = "h",
    [ROW_WEIGHT] = "row_weight",
    [DW_PARTS] = "dw_parts",
    [W13] = "w13",
    [W2] = "w2",
    [DW13] = "dw13",
    [DW2] = "dw2",
};

struct bench_products {
    mmoe_group *group;
    mmoe_layer *layer;
    int64_t hidden, intermediate, experts;
    int32_t *first_row; /* [E + 1] */
    void *segments;     /* on the device: first_row, then the used rows */
    void *address[OPERANDS];
};

const char *bench_error(void) {
    return mmoe_last_error();
}

/* ---- Making ---- */

static mmoe_status make_layer(struct bench_products *products) {
    mmoe_group_config group = mmoe_group_config_default();
    group.max_tokens = 1;
    group.max_hidden = products->hidden;
    group.max_top_k = 1;
    group.max_experts = products->experts;
    group.backend = "cuda";
    mmoe_status status = mmoe_group_create_threads(&group, 1, &products->group);
    if (status != MMOE_OK) {
        return status;
    }
    mmoe_layer_config layer = mmoe_layer_config_default();
    layer.hidden = products->hidden;
    layer.intermediate = products->intermediate;
    layer.experts = products->experts;
    layer.top_k = 1;
    return mmoe_layer_create(products->group, &layer, &products->layer);
}

static mmoe_status make_segments(struct bench_products *products, const int32_t *rows) {
    const size_t experts = (size_t)products->experts, word = sizeof(int32_t);
    mmoe_status status = mm_alloc((void **)&products->first_row, (experts + 1) * word, "the segments");
    if (status != MMOE_OK) {
        return status;
    }
    products->first_row[0] = 0;
    for (size_t e = 0; e < experts; e++) {
        const int32_t blocks = (rows[e] + MMOE_ROW_BLOCK - 1) / MMOE_ROW_BLOCK;
        products->first_row[e + 1] = products->first_row[e] + blocks * MMOE_ROW_BLOCK;
    }
    status = mmoe_device_alloc(products->group, (2 * experts + 1) * word, &products->segments);
    if (status == MMOE_OK) {
        status = mmoe_device_write(products->group, products->segments, products->first_row, (experts + 1) * word);
    }
    if (status == MMOE_OK) {
        status = mmoe_device_write(products->group, (int32_t *)products->segments + experts + 1, rows, experts * word);
    }
    return status;
}

int bench_products_make(int64_t hidden, int64_t intermediate, int64_t experts, const int32_t *rows,
                        struct bench_products **made) {
    mmoe_status status = mm_alloc_zero((void **)made, sizeof **made, "the products");
    if (status != MMOE_OK) {
        return status;
    }
    (*made)->hidden = hidden;
    (*made)->intermediate = intermediate;
    (*made)->experts = experts;
    status = make_layer(*made);
    if (status == MMOE_OK) {
        status = make_segments(*made, rows);
    }
    if (status != MMOE_OK) {
        bench_products_free(*made);
        *made = NULL;
    }
    return status;
}

void bench_products_free(struct bench_products *products) {
    if (products->group != NULL) {
        mmoe_device_free(products->group, &products->segments);
    }
    mmoe_layer_destroy(&products->layer);
    mmoe_group_destroy(&products->group);
    mm_free(&products->first_row);
    mm_free(&products);
}

int64_t bench_products_first_row(const struct bench_products *products, int64_t expert) {
    return products->first_row[expert];
}

int bench_products_bind(struct bench_products *products, const char *operand, void *address) {
    for (int i = 0; i < OPERANDS; i++) {
        if (strcmp(operand_names[i], operand) == 0) {
            products->address[i] = address;
            return MMOE_OK;
        }
    }
    return mm_fail(MMOE_INVALID_ARGUMENT, "operand is \"%s\", expected one of bench.h", operand);
}

/* ---- Launching ---- */

static mm_cu_pointer at(const struct bench_products *products, enum operand operand) {
    return (mm_cu_pointer)(uintptr_t)products->address[operand];
}

/* A call in whose middle a product stands: the plan has two tables and the rows' weights, which is what products read.
 */
struct passage {
    struct mm_cuda_call call;
    struct mm_cuda_plan plan;
    mmoe_tensor gate, up, down;
};

static void start(struct passage *passage, const struct bench_products *products, void *stream) {
    struct mm_cuda_call *call = &passage->call;
    *call = mm_cuda_call_of(products->layer, MM_CALL_FORWARD, 0, stream, false);
    passage->plan = (struct mm_cuda_plan){0};
    passage->plan.arrays.tables.expert_offset = products->segments;
    passage->plan.arrays.tables.expert_rows = (int32_t *)products->segments + products->experts + 1;
    passage->plan.arrays.rows.weight = products->address[ROW_WEIGHT];
    const int64_t hidden = products->hidden, inner = products->intermediate;
    const mmoe_tensor w13 = mmoe_stack(products->address[W13], MMOE_BF16, products->experts, 2 * inner, hidden);
    passage->gate = mmoe_stack_rows(w13, 0, inner);
    passage->up = mmoe_stack_rows(w13, inner, inner);
    passage->down = mmoe_stack(products->address[W2], MMOE_BF16, products->experts, hidden, inner);
    call->plan = &passage->plan;
    call->pool_rows = (uint32_t)products->first_row[products->experts];
    call->x = at(products, X);
    call->dy = at(products, DY);
    call->gate_up = at(products, GATE_UP);
    call->h = at(products, H);
    call->dgrad = at(products, DGRAD);
    call->out = at(products, OUT);
    call->dw_parts = at(products, DW_PARTS);
    call->gate = &passage->gate;
    call->up = &passage->up;
    call->down = &passage->down;
}

static mmoe_status run_wgrad(struct mm_cuda_call *call, const struct bench_products *products, bool down, int wide,
                             int accumulate) {
    const int64_t hidden = products->hidden, inner = products->intermediate;
    const mmoe_dtype dtype = wide ? MMOE_F32 : MMOE_BF16;
    mmoe_backward_args args = mmoe_backward_args_default();
    args.accumulate = accumulate;
    if (down) {
        args.ddown = mmoe_stack(products->address[DW2], dtype, products->experts, hidden, inner);
    } else {
        const mmoe_tensor dw13 = mmoe_stack(products->address[DW13], dtype, products->experts, 2 * inner, hidden);
        args.dgate = mmoe_stack_rows(dw13, 0, inner);
        args.dup = mmoe_stack_rows(dw13, inner, inner);
    }
    struct mm_cuda_wgrads wgrads;
    mmoe_status status = mm_cuda_wgrads_of(call, &args, &wgrads);
    return status == MMOE_OK ? mm_cuda_wgrad(call, &wgrads, false) : status;
}

static mmoe_status run(struct mm_cuda_call *call, const struct bench_products *products, const char *product, int wide,
                       int accumulate) {
    if (strcmp(product, "gate_up") == 0) {
        return mm_cuda_gate_up(call, false);
    }
    if (strcmp(product, "gate_up_keep") == 0) {
        return mm_cuda_gate_up(call, true);
    }
    if (strcmp(product, "down") == 0) {
        return mm_cuda_down(call);
    }
    if (strcmp(product, "dgate_up") == 0) {
        return mm_cuda_dgate_up(call);
    }
    if (strcmp(product, "dx") == 0) {
        return mm_cuda_dx(call);
    }
    if (strcmp(product, "dw2") == 0 || strcmp(product, "dw13") == 0) {
        return run_wgrad(call, products, strcmp(product, "dw2") == 0, wide, accumulate);
    }
    return mm_fail(MMOE_INVALID_ARGUMENT, "product is \"%s\", expected one of bench.h", product);
}

int bench_products_run(struct bench_products *products, const char *product, int wide, int accumulate, void *stream) {
    struct passage passage;
    start(&passage, products, stream);
    mmoe_status status = mm_gpu_enter(passage.call.gpu);
    if (status == MMOE_OK) {
        status = run(&passage.call, products, product, wide, accumulate);
        mm_gpu_leave(passage.call.gpu);
    }
    return status;
}
