/* NaN in outputs; see fill.h. */
#include "cuda/fill.h"

#include "cuda/inputs.h"

/* Enough warps on each multiprocessor to keep the memory busy. */
static struct mm_cuda_grid grid_of(const struct mm_cuda_call *call) {
    return (struct mm_cuda_grid){.ctas = 2 * (unsigned)call->gpu->device.multiprocessors, .threads = ROW_THREADS};
}

static mmoe_status fill_matrix(const struct mm_cuda_call *call, const mmoe_tensor *to, void *data) {
    const int first = to->dims - 2;
    const struct fill_nan_params params = {
        .to = {data, {to->stride[first], to->stride[first + 1]}},
        .rows = (uint32_t)to->shape[first],
        .cols = (uint32_t)to->shape[first + 1],
        .wide = to->dtype == MMOE_F32,
    };
    return mm_cuda_launch(call, MM_KERNEL_FILL_NAN, grid_of(call), &params);
}

mmoe_status mm_cuda_fill_nan(const struct mm_cuda_call *call, const mmoe_tensor *to) {
    if (!mm_wanted(to)) {
        return MMOE_OK;
    }
    if (to->dims == 2) {
        return fill_matrix(call, to, to->data);
    }
    mmoe_status status = MMOE_OK;
    for (int64_t e = 0; e < to->shape[0] && status == MMOE_OK; e++) {
        status = fill_matrix(call, to, mm_expert_data(to, e));
    }
    return status;
}
