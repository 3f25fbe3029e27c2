/* Set-up and tear-down; see setup.h. */
#include <cblas.h>

#include "cpu/products.h"
#include "cpu/setup.h"

/* ---- Group ---- */

static void free_pools(struct mm_pools *pools) {
    mm_buffer_free(&pools->x);
    mm_buffer_free(&pools->dy);
    mm_buffer_free(&pools->gate_up);
    mm_buffer_free(&pools->h);
    mm_buffer_free(&pools->dgrad);
    mm_buffer_free(&pools->dw);
    mm_buffer_free(&pools->runs);
    mm_buffer_free(&pools->links);
}

void mm_cpu_group_close(struct mmoe_group *group) {
    struct mm_cpu_group *cpu = group->backend_state;
    if (cpu == NULL)
        return;
    mm_pool_destroy(&cpu->pool);
    free_pools(&cpu->pools);
    mm_buffer_free(&cpu->workspace);
    mm_free(&cpu->spaces);
    mm_plan_free(&cpu->plan);
    mm_free(&group->backend_state);
}

mmoe_status mm_cpu_group_open(struct mmoe_group *group) {
    struct mm_cpu_group *cpu;
    mmoe_status status = mm_alloc_zero((void **)&cpu, sizeof *cpu, "the CPU backend of a group");
    if (status != MMOE_OK)
        return status;
    group->backend_state = cpu;
    /* The loops over blocks are ours: OpenBLAS must not cut a product among threads of its own, which would change
     * bits. */
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    cpu->threads = mm_pool_threads(&group->config, group->world);
    status =
        mm_alloc_zero((void **)&cpu->spaces, (size_t)cpu->threads * sizeof *cpu->spaces, "the threads' workspaces");
    if (status == MMOE_OK)
        status = mm_pool_create(cpu->threads, &cpu->pool);
    if (status != MMOE_OK)
        mm_cpu_group_close(group);
    return status;
}

mmoe_status mm_cpu_pools_reserve(struct mm_cpu_group *cpu, const struct mm_pool_bytes *bytes) {
    struct mm_pools *pools = &cpu->pools;
    const struct {
        struct mm_buffer *buffer;
        size_t bytes;
        const char *what;
    } all[] = {
        {&pools->x, bytes->x, "the token rows"},
        {&pools->dy, bytes->dy, "the gradient rows"},
        {&pools->gate_up, bytes->gate_up, "the gate and up rows"},
        {&pools->h, bytes->h, "the activation rows"},
        {&pools->dgrad, bytes->dgrad, "the gate and up gradient rows"},
        {&pools->dw, bytes->dw, "the parts of the router weights' gradients"},
        {&pools->runs, bytes->runs, "the runs of rows"},
        {&pools->links, bytes->links, "the rows of each token"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        mmoe_status status = mm_buffer_reserve(all[i].buffer, all[i].bytes, all[i].what);
        if (status != MMOE_OK)
            return status;
    }
    return MMOE_OK;
}

/* ---- Layer ---- */

/* Workspaces for the deepest layer of the group so far. */
static mmoe_status reserve_workspaces(struct mm_cpu_group *cpu, const mmoe_layer_config *config) {
    const int64_t depth = mm_workspace_depth(config);
    if (depth <= cpu->depth)
        return MMOE_OK;
    cpu->depth = 0;
    mmoe_status status =
        mm_buffer_reserve(&cpu->workspace, mm_workspace_bytes(config, cpu->threads), "the threads' workspaces");
    if (status != MMOE_OK)
        return status;
    float *next = cpu->workspace.data;
    for (int i = 0; i < cpu->threads; i++) {
        cpu->spaces[i].a = next;
        cpu->spaces[i].b = cpu->spaces[i].a + mm_workspace_a(depth);
        cpu->spaces[i].c = cpu->spaces[i].b + mm_workspace_b(depth);
        next = cpu->spaces[i].c + mm_workspace_c();
    }
    cpu->depth = depth;
    return MMOE_OK;
}

static int64_t most_padded_rows(const struct mmoe_layer *layer) {
    int64_t rows = mm_most_rows(&layer->config, layer->group->world, layer->group->config.max_tokens);
    return mm_padded_rows_bound(rows, layer->local_experts);
}

/* With a fixed capacity calls allocate nothing. */
static mmoe_status reserve_fixed(struct mmoe_layer *layer) {
    const struct mmoe_group *group = layer->group;
    struct mm_cpu_group *cpu = group->backend_state;
    if (layer->config.capacity_policy != MMOE_CAPACITY_FIXED)
        return MMOE_OK;
    int64_t rows = most_padded_rows(layer);
    struct mm_pool_bytes bytes = mm_pool_bytes_of(&layer->config, rows);
    mmoe_status status = mm_cpu_pools_reserve(cpu, &bytes);
    if (status != MMOE_OK)
        return status;
    struct mm_plan_shape shape = mm_plan_shape_of(&layer->config, group->rank, group->world);
    return mm_plan_reserve(&cpu->plan, &shape, group->config.max_tokens, rows);
}

mmoe_status mm_cpu_layer_open(struct mmoe_layer *layer) {
    struct mm_cpu_group *cpu = layer->group->backend_state;
    struct mm_cpu_layer *products;
    mmoe_status status = mm_alloc_zero((void **)&products, sizeof *products, "the CPU backend of a layer");
    if (status != MMOE_OK)
        return status;
    layer->backend_state = products;
    status = reserve_workspaces(cpu, &layer->config);
    if (status == MMOE_OK)
        status = reserve_fixed(layer);
    if (status != MMOE_OK) {
        mm_cpu_layer_close(layer);
        return status;
    }
    mm_products_plan(&layer->config, cpu, products);
    return MMOE_OK;
}

void mm_cpu_layer_close(struct mmoe_layer *layer) {
    mm_free(&layer->backend_state);
}

/* ---- Saved state ---- */

mmoe_status mm_cpu_kept_reserve(struct mm_cpu_saved *kept, const struct mm_pool_bytes *bytes) {
    mmoe_status status = mm_buffer_reserve(&kept->x, bytes->x, "the kept token rows");
    return status == MMOE_OK ? mm_buffer_reserve(&kept->gate_up, bytes->gate_up, "the kept gate and up rows") : status;
}

mmoe_status mm_cpu_saved_open(struct mmoe_saved *saved) {
    struct mm_cpu_saved *kept;
    mmoe_status status = mm_alloc_zero((void **)&kept, sizeof *kept, "the kept rows of a saved state");
    if (status != MMOE_OK)
        return status;
    saved->backend_state = kept;
    const struct mmoe_layer *layer = saved->layer;
    if (saved->keep == MMOE_KEEP_ROWS && layer->config.capacity_policy == MMOE_CAPACITY_FIXED) {
        struct mm_pool_bytes bytes = mm_pool_bytes_of(&layer->config, most_padded_rows(layer));
        status = mm_cpu_kept_reserve(kept, &bytes);
    }
    if (status != MMOE_OK)
        mm_cpu_saved_close(saved);
    return status;
}

void mm_cpu_saved_close(struct mmoe_saved *saved) {
    struct mm_cpu_saved *kept = saved->backend_state;
    if (kept == NULL)
        return;
    mm_buffer_free(&kept->x);
    mm_buffer_free(&kept->gate_up);
    mm_free(&saved->backend_state);
}
