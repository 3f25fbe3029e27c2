/* The workspace; see workspace.h. */
#include "cuda/workspace.h"

#include <string.h>

#include "base/memory.h"
#include "plan/plan.h"

static int64_t most_local_experts(const mmoe_group_config *config, int world) {
    return (config->max_experts + world - 1) / world;
}

/* That any plan of the group can have. */
static size_t most_blocks(const mmoe_group_config *config, int world) {
    const int64_t rows = world * config->max_tokens * config->max_top_k;
    return (size_t)(mm_padded_rows_bound(rows, most_local_experts(config, world)) / MMOE_ROW_BLOCK);
}

static size_t carve(uintptr_t block, const mmoe_group_config *config, int world, struct mm_cuda_workspace *workspace) {
    const size_t blocks = most_blocks(config, world);
    const size_t local_experts = (size_t)most_local_experts(config, world);
    struct call_work *work = &workspace->work;
    uintptr_t next = block;
    const struct {
        void *member;
        size_t bytes;
    } pieces[] = {
        {&workspace->state, sizeof *workspace->state},
        {&work->counters, sizeof *work->counters},
        {&work->base, sizeof *work->base},
        {&work->rows.now, blocks * sizeof(uint32_t)},
        {&work->rows.target, blocks * sizeof(uint32_t)},
        {&work->h.now, blocks * sizeof(uint32_t)},
        {&work->h.target, blocks * sizeof(uint32_t)},
        {&work->dgrad.now, blocks * sizeof(uint32_t)},
        {&work->dgrad.target, blocks * sizeof(uint32_t)},
        {&work->results.now, blocks * sizeof(uint32_t)},
        {&work->results.target, blocks * sizeof(uint32_t)},
        {&work->by_rows, local_experts * sizeof *work->by_rows},
        {&workspace->chunk_counts, MM_CUDA_PLAN_CTAS * (size_t)config->max_experts * sizeof *workspace->chunk_counts},
        {&workspace->first_faults, MM_CUDA_ENTER_CTAS * sizeof *workspace->first_faults},
        {&workspace->ctas_done, sizeof *workspace->ctas_done},
        {&workspace->ctas_copied, sizeof *workspace->ctas_copied},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        memcpy(pieces[i].member, &next, sizeof next);
        next += mm_align(pieces[i].bytes);
    }
    return next - block;
}

size_t mm_cuda_workspace_bytes(const mmoe_group_config *config, int world) {
    struct mm_cuda_workspace workspace;
    return carve(0, config, world, &workspace);
}

mmoe_status mm_cuda_workspace_make(const struct mm_gpu *gpu, const mmoe_group_config *config, int world,
                                   struct mm_cuda_workspace *workspace) {
    mmoe_status status =
        mm_device_reserve(gpu, &workspace->memory, mm_cuda_workspace_bytes(config, world), "the workspace of calls");
    if (status == MMOE_OK) {
        carve((uintptr_t)workspace->memory.address, config, world, workspace);
        status =
            mm_device_clear(gpu, workspace->memory.address, workspace->memory.bytes, "clearing the workspace of calls");
    }
    return status;
}

void mm_cuda_workspace_free(const struct mm_gpu *gpu, struct mm_cuda_workspace *workspace) {
    mm_device_free(gpu, &workspace->memory);
}
