/* Operands on a device; see device.h. */
#include "rig/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

#include "cuda/state.h"
#include "rig/one_gpu.h"

static bool on_device(const struct rig_rank *rank) {
    return mmoe_group_device(rank->group) >= 0;
}

bool rig_send(struct rig_rank *rank, void *to, const void *from, size_t bytes) {
    const mmoe_status status = rank->share != NULL ? rig_share_write(rank->share, to, from, bytes)
                                                   : mmoe_device_write(rank->group, to, from, bytes);
    RIG_TRY(rank, status == MMOE_OK, "can't copy: %s", mmoe_last_error());
    return true;
}

bool rig_fetch(struct rig_rank *rank, void *to, const void *from, size_t bytes) {
    const mmoe_status status = rank->share != NULL ? rig_share_read(rank->share, to, from, bytes)
                                                   : mmoe_device_read(rank->group, to, from, bytes);
    RIG_TRY(rank, status == MMOE_OK, "can't copy back: %s", mmoe_last_error());
    return true;
}

static bool allocate(struct rig_rank *rank, size_t bytes, void **memory) {
    if (rank->share != NULL) {
        *memory = rig_share_take(rank->share, bytes);
        RIG_TRY(rank, *memory != NULL, "a rank's share of the GPU has no %zu bytes left", bytes);
        return true;
    }
    RIG_TRY(rank, mmoe_device_alloc(rank->group, bytes, memory) == MMOE_OK, "no memory: %s", mmoe_last_error());
    return true;
}

static bool place_memory(struct rig_rank *rank, const struct rig_tensor *tensor, void **memory) {
    return allocate(rank, tensor->bytes, memory) && rig_send(rank, *memory, tensor->memory, tensor->bytes);
}

/* The only backend that has a device. */
static struct mm_cuda_group *cuda_of(const struct rig_rank *rank) {
    return rank->group->backend_state;
}

/* Where a host address inside the tensor's memory lies on the device. */
static void *moved(const struct rig_tensor *tensor, const void *memory, void *address) {
    return (char *)(uintptr_t)memory + ((unsigned char *)address - tensor->memory);
}

static bool belongs(const struct rig_tensor *tensor, const mmoe_tensor *view) {
    if (view->experts)
        return view->experts == tensor->experts;
    const unsigned char *data = view->data;
    return data >= tensor->memory && data < tensor->memory + tensor->bytes;
}

static void move_view(const struct rig_call *call, const struct rig_placed *placed, mmoe_tensor *view) {
    for (int i = 0; i < RIG_OPERANDS; i++) {
        const struct rig_tensor *tensor = &call->tensor[i];
        if (!tensor->memory || view->dims == 0 || !belongs(tensor, view))
            continue;
        if (view->experts)
            view->experts = placed->experts[i];
        else
            view->data = moved(tensor, placed->memory[i], view->data);
        return;
    }
}

static void move_views(struct rig_call *call, const struct rig_placed *placed) {
    mmoe_forward_args *forward = &call->forward;
    mmoe_backward_args *backward = &call->backward;
    mmoe_tensor *views[] = {&forward->x,      &forward->ids,      &forward->weights, &forward->gate,   &forward->up,
                            &forward->down,   &forward->y,        &backward->x,      &backward->dy,    &backward->gate,
                            &backward->up,    &backward->down,    &backward->dx,     &backward->dgate, &backward->dup,
                            &backward->ddown, &backward->dweights};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        move_view(call, placed, views[i]);
}

bool rig_call_place(struct rig_rank *rank, struct rig_call *call, struct rig_placed *placed) {
    *placed = (struct rig_placed){0};
    for (int i = 0; i < RIG_OPERANDS && on_device(rank); i++) {
        const struct rig_tensor *tensor = &call->tensor[i];
        if (!tensor->memory)
            continue;
        if (!place_memory(rank, tensor, &placed->memory[i]))
            return false;
        if (!tensor->experts)
            continue;
        placed->experts[i] = malloc((size_t)tensor->view.shape[0] * sizeof(void *) + 1);
        for (int64_t e = 0; e < tensor->view.shape[0]; e++)
            placed->experts[i][e] = moved(tensor, placed->memory[i], tensor->experts[e]);
    }
    if (on_device(rank))
        move_views(call, placed);
    return true;
}

bool rig_call_fetch(struct rig_rank *rank, struct rig_call *call, const struct rig_placed *placed) {
    for (int i = 0; i < RIG_OPERANDS; i++) {
        struct rig_tensor *tensor = &call->tensor[i];
        if (placed->memory[i] && !rig_fetch(rank, tensor->memory, placed->memory[i], tensor->bytes))
            return false;
    }
    return true;
}

void rig_placed_free(struct rig_rank *rank, struct rig_placed *placed) {
    for (int i = 0; i < RIG_OPERANDS; i++) {
        if (rank->share == NULL)
            mmoe_device_free(rank->group, &placed->memory[i]);
        else if (placed->memory[i] != NULL)
            rig_share_give(rank->share);
        free(placed->experts[i]);
    }
}

/* ---- Poison ---- */

static mmoe_status fill(const struct rig_rank *rank, const struct mm_device_buffer *buffers, size_t count, int value) {
    const struct mm_gpu *gpu = &cuda_of(rank)->gpu;
    const mm_cu_stream stream = rank->share != NULL ? rank->share->stream : NULL;
    mmoe_status status = mm_gpu_enter(gpu);
    if (status != MMOE_OK)
        return status;
    for (size_t i = 0; i < count && status == MMOE_OK; i++)
        if (buffers[i].bytes > 0)
            status = MM_CU(&gpu->driver, cuMemsetD8Async, "poisoning", buffers[i].address, (unsigned char)value,
                           buffers[i].bytes, stream);
    if (status == MMOE_OK)
        status = MM_CU(&gpu->driver, cuStreamSynchronize, "poisoning", stream);
    mm_gpu_leave(gpu);
    return status;
}

static bool poison_buffers(struct rig_rank *rank, const struct mm_device_buffer *buffers, size_t count, int poison) {
    RIG_TRY(rank, fill(rank, buffers, count, poison) == MMOE_OK, "can't poison: %s", mmoe_last_error());
    return true;
}

bool rig_poison_shared(struct rig_rank *rank, int poison) {
    if (!on_device(rank))
        return true;
    const struct mm_layout *layout = &cuda_of(rank)->layout;
    const struct mm_device_buffer data = {cuda_of(rank)->shared.base[rank->rank] + layout->x,
                                          layout->bytes - layout->x};
    return poison_buffers(rank, &data, 1, poison);
}

/* Nothing before the first call, where the simulator sees by itself what is read and was never written. */
bool rig_poison_scratch(struct rig_rank *rank, int poison) {
    if (!on_device(rank) || rank->group->call == 0)
        return true;
    const struct mm_cuda_group *cuda = cuda_of(rank);
    const struct mm_cuda_pools *pools = &cuda->pools;
    const struct mm_layout *layout = &cuda->layout;
    const struct mm_device_buffer buffers[] = {
        {cuda->shared.base[rank->rank] + layout->combine, layout->bytes - layout->combine},
        cuda->plan.memory,
        cuda->weight_maps,
        pools->x,
        pools->dy,
        pools->gate_up,
        pools->h,
        pools->dgrad,
        pools->dw_parts,
    };
    return poison_buffers(rank, buffers, sizeof buffers / sizeof buffers[0], poison);
}

/* ---- Devices ---- */

static int count_gpus(void) {
    struct mm_driver driver;
    int count = 0;
    if (mm_driver_open(&driver, MM_DRIVER_VERSION_NEEDED) == MMOE_OK) {
        mm_device_count(&driver, &count);
        mm_driver_close(&driver);
    }
    return count;
}

int rig_count_gpus(void) {
    int status = 0;
    pid_t id = fork();
    if (id == 0)
        _exit(count_gpus());
    return id > 0 && waitpid(id, &status, 0) == id && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

void rig_need_gpus(int count) {
    const char *name;
    int cuda = 0;
    while ((name = mmoe_backend(cuda, NULL, NULL)) != NULL && strcmp(name, "cuda") != 0)
        cuda++;
    if (mmoe_backend_device(cuda, count - 1) == NULL) {
        print_message("not run: it needs %d GPUs\n", count);
        skip();
    }
}

bool rig_simulated(void) {
    return getenv("MEGAMOE_LIBCUDA") != NULL;
}

/* A context of a simulated driver costs nothing, and it waits for whoever holds one. */
void rig_hold_devices(const char *backend, int ranks) {
    static int held;
    if (held >= ranks || strcmp(backend, "cpu") == 0 || rig_simulated())
        return;
    mmoe_group *groups[MMOE_MAX_WORLD];
    mmoe_group_config config = mmoe_group_config_default();
    config.max_hidden = config.max_top_k = config.max_experts = 1;
    config.backend = backend;
    if (mmoe_group_create_threads(&config, ranks, groups) == MMOE_OK) /* else the test's own group will say why */
        held = ranks;
}
