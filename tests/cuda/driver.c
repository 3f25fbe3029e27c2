/* The simulated driver by itself: copies, fills, streams, events, memory, several ranks, and what a fault does. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/device_memory.h"
#include "cuda/kernel.h"
#include "kernels/row_params.h"

#define BYTES ((size_t)4096)

#define OK(call) assert_int_equal(call, MM_CUDA_SUCCESS)

static struct mm_gpu gpu;

static int open_gpu(void **state) {
    (void)state;
    const struct mm_device_wish first = {.number = 0};
    return mm_gpu_open(&gpu, &first) == MMOE_OK && mm_gpu_enter(&gpu) == MMOE_OK ? 0 : -1;
}

static int close_gpu(void **state) {
    (void)state;
    mm_gpu_leave(&gpu);
    mm_gpu_close(&gpu);
    return 0;
}

static mm_cu_pointer allocate(size_t bytes) {
    mm_cu_pointer memory = 0;
    OK(gpu.driver.cuMemAlloc(&memory, bytes));
    return memory;
}

static void fill_pattern(unsigned char *bytes, unsigned char first) {
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(first + i * 7);
}

/* Ordinary memory has been read when the call returns, and written. */
static void copies(void **state) {
    (void)state;
    unsigned char text[BYTES], expected[BYTES], back[BYTES];
    mm_cu_pointer memory = allocate(BYTES);
    fill_pattern(text, 1);
    memcpy(expected, text, BYTES);
    OK(gpu.driver.cuMemcpyHtoDAsync(memory, text, BYTES, NULL));
    memset(text, 0, BYTES);
    OK(gpu.driver.cuMemcpyDtoHAsync(back, memory, BYTES, NULL));
    assert_memory_equal(back, expected, BYTES);
    OK(gpu.driver.cuMemsetD8Async(memory + 16, 0x5a, 32, NULL));
    memset(expected + 16, 0x5a, 32);
    OK(gpu.driver.cuMemcpyDtoHAsync(back, memory, BYTES, NULL));
    assert_memory_equal(back, expected, BYTES);
    assert_int_equal(gpu.driver.cuMemcpyDtoHAsync(back, memory, BYTES + 1, NULL), MM_CUDA_ERROR_INVALID_VALUE);
    OK(gpu.driver.cuMemFree(memory));
    assert_int_equal(gpu.driver.cuMemFree(memory), MM_CUDA_ERROR_INVALID_VALUE);
}

/* A copy to pinned memory comes when somebody waits for it, not before. */
static void pinned_memory(void **state) {
    (void)state;
    unsigned char *pinned;
    mm_cu_pointer memory = allocate(BYTES);
    OK(gpu.driver.cuMemHostAlloc((void **)&pinned, BYTES, 0));
    pinned[0] = 1;
    OK(gpu.driver.cuMemsetD8Async(memory, 9, BYTES, NULL));
    OK(gpu.driver.cuMemcpyDtoHAsync(pinned, memory, BYTES, NULL));
    assert_int_equal(pinned[0], 1);
    OK(gpu.driver.cuStreamSynchronize(NULL));
    assert_int_equal(pinned[0], 9);
    OK(gpu.driver.cuMemFreeHost(pinned));
    OK(gpu.driver.cuMemFree(memory));
}

static void streams_and_events(void **state) {
    (void)state;
    mm_cu_stream first, second;
    mm_cu_event event, later, never;
    unsigned char back[16];
    float milliseconds = -1;
    mm_cu_pointer memory = allocate(BYTES);
    OK(gpu.driver.cuStreamCreate(&first, 0));
    OK(gpu.driver.cuStreamCreate(&second, 0));
    OK(gpu.driver.cuEventCreate(&event, 0));
    OK(gpu.driver.cuEventCreate(&later, 0));
    OK(gpu.driver.cuEventCreate(&never, 0));
    OK(gpu.driver.cuMemsetD8Async(memory, 1, BYTES, first));
    OK(gpu.driver.cuEventRecord(event, first));
    OK(gpu.driver.cuStreamWaitEvent(second, event, 0));
    OK(gpu.driver.cuMemsetD8Async(memory, 2, BYTES, second));
    OK(gpu.driver.cuEventRecord(later, second));
    assert_int_equal(gpu.driver.cuEventElapsedTime(&milliseconds, event, later), MM_CUDA_ERROR_NOT_READY);
    OK(gpu.driver.cuEventSynchronize(later));
    OK(gpu.driver.cuEventElapsedTime(&milliseconds, event, later));
    assert_true(milliseconds >= 0);
    OK(gpu.driver.cuMemcpyDtoHAsync(back, memory, sizeof back, second));
    assert_int_equal(back[5], 2);
    OK(gpu.driver.cuEventSynchronize(never));
    assert_int_equal(gpu.driver.cuEventElapsedTime(&milliseconds, never, later), MM_CUDA_ERROR_INVALID_HANDLE);
    OK(gpu.driver.cuEventDestroy(event));
    OK(gpu.driver.cuEventDestroy(later));
    OK(gpu.driver.cuEventDestroy(never));
    OK(gpu.driver.cuStreamDestroy(first));
    OK(gpu.driver.cuStreamDestroy(second));
    OK(gpu.driver.cuMemFree(memory));
}

static void accounting(void **state) {
    (void)state;
    size_t before, after, total;
    mm_cu_pointer none = 1;
    int type, ordinal;
    OK(gpu.driver.cuMemGetInfo(&before, &total));
    mm_cu_pointer memory = allocate(BYTES);
    OK(gpu.driver.cuMemGetInfo(&after, &total));
    assert_int_equal(before - after, BYTES);
    assert_int_equal(gpu.driver.cuMemAlloc(&none, after + 1), MM_CUDA_ERROR_OUT_OF_MEMORY);
    OK(gpu.driver.cuPointerGetAttribute(&type, MM_CU_POINTER_MEMORY_TYPE, memory + 7));
    OK(gpu.driver.cuPointerGetAttribute(&ordinal, MM_CU_POINTER_DEVICE_ORDINAL, memory + 7));
    assert_int_equal(type, MM_CU_MEMORY_DEVICE);
    assert_int_equal(ordinal, gpu.device.ordinal);
    assert_int_equal(
        gpu.driver.cuPointerGetAttribute(&type, MM_CU_POINTER_MEMORY_TYPE, (mm_cu_pointer)(uintptr_t)&type),
        MM_CUDA_ERROR_INVALID_VALUE);
    OK(gpu.driver.cuMemFree(memory));
}

/* Memory that is freed in a stream is there again when the stream has come to that, which a larger buffer waits for. */
static void memory_in_streams(void **state) {
    (void)state;
    struct mm_device_buffer buffer = {0};
    mm_cu_stream stream;
    size_t before, after, total;
    OK(gpu.driver.cuStreamCreate(&stream, MM_CU_STREAM_NON_BLOCKING));
    OK(gpu.driver.cuMemGetInfo(&before, &total));
    assert_int_equal(mm_device_reserve_in(&gpu, stream, &buffer, before / 2 + 1, "half"), MMOE_OK);
    OK(gpu.driver.cuMemsetD8Async(buffer.address, 1, 16, stream));
    assert_int_equal(mm_device_reserve_in(&gpu, stream, &buffer, before / 2 + 2, "a little more"), MMOE_OK);
    OK(gpu.driver.cuMemGetInfo(&after, &total));
    assert_int_equal(before - after, before / 2 + 2);
    const mm_cu_pointer freed = buffer.address;
    mm_device_free_in(&gpu, stream, &buffer);
    assert_int_equal(gpu.driver.cuMemFreeAsync(freed, stream), MM_CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(gpu.driver.cuMemFree(freed), MM_CUDA_ERROR_INVALID_VALUE);
    OK(gpu.driver.cuStreamSynchronize(stream));
    OK(gpu.driver.cuMemGetInfo(&after, &total));
    assert_int_equal(before, after);
    OK(gpu.driver.cuStreamDestroy(stream));
}

/* ---- Graphs, through functions that the library does not call ---- */

static mm_cu_result (*begin_capture)(mm_cu_stream, int), (*end_capture)(mm_cu_stream, void **);
static mm_cu_result (*instantiate)(void **, void *, unsigned long long), (*launch_graph)(void *, mm_cu_stream);
static mm_cu_result (*destroy_graph)(void *), (*destroy_instance)(void *);

static void find_graph_functions(void) {
    const struct {
        const char *name;
        void *function;
    } all[] = {{"cuStreamBeginCapture_v2", &begin_capture},
               {"cuStreamEndCapture", &end_capture},
               {"cuGraphInstantiateWithFlags", &instantiate},
               {"cuGraphLaunch", &launch_graph},
               {"cuGraphDestroy", &destroy_graph},
               {"cuGraphExecDestroy", &destroy_instance}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *found = dlsym(gpu.driver.library, all[i].name);
        assert_non_null(found);
        memcpy(all[i].function, &found, sizeof found);
    }
}

/* Work on a stream, and beside it on another one that takes part through events, is done when it is replayed, in order
 * with what is not. */
static void graphs(void **state) {
    (void)state;
    mm_cu_stream stream, beside;
    mm_cu_event fork, join;
    void *graph, *instance;
    unsigned char back[2] = {0};
    int capturing;
    find_graph_functions();
    mm_cu_pointer memory = allocate(BYTES);
    OK(gpu.driver.cuStreamCreate(&stream, MM_CU_STREAM_NON_BLOCKING));
    OK(gpu.driver.cuStreamCreate(&beside, MM_CU_STREAM_NON_BLOCKING));
    OK(gpu.driver.cuEventCreate(&fork, 0));
    OK(gpu.driver.cuEventCreate(&join, 0));
    OK(gpu.driver.cuMemsetD8Async(memory, 1, BYTES, stream));
    OK(begin_capture(stream, 0));
    OK(gpu.driver.cuStreamIsCapturing(stream, &capturing));
    assert_int_equal(capturing, MM_CU_CAPTURE_ACTIVE);
    OK(gpu.driver.cuMemsetD8Async(memory, 2, 1, stream));
    OK(gpu.driver.cuEventRecord(fork, stream));
    OK(gpu.driver.cuStreamWaitEvent(beside, fork, 0));
    OK(gpu.driver.cuMemsetD8Async(memory + 1, 3, 1, beside));
    OK(gpu.driver.cuEventRecord(join, beside));
    OK(gpu.driver.cuStreamWaitEvent(stream, join, 0));
    assert_int_equal(gpu.driver.cuStreamSynchronize(stream), MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(gpu.driver.cuMemcpyHtoDAsync(memory, back, 1, stream), MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(gpu.driver.cuEventQuery(fork), MM_CUDA_ERROR_CAPTURED_EVENT);
    OK(end_capture(stream, &graph));
    OK(instantiate(&instance, graph, 0));
    OK(destroy_graph(graph));
    OK(gpu.driver.cuStreamSynchronize(stream));
    OK(gpu.driver.cuMemcpyDtoHAsync(back, memory, 2, stream));
    assert_true(back[0] == 1 && back[1] == 1);
    for (int i = 0; i < 2; i++) {
        OK(gpu.driver.cuMemsetD8Async(memory, 9, BYTES, stream));
        OK(launch_graph(instance, stream));
        OK(gpu.driver.cuMemcpyDtoHAsync(back, memory, 2, stream));
        assert_true(back[0] == 2 && back[1] == 3);
    }
    OK(destroy_instance(instance));
    OK(begin_capture(stream, 0));
    OK(gpu.driver.cuEventRecord(fork, stream));
    OK(gpu.driver.cuStreamWaitEvent(beside, fork, 0));
    OK(gpu.driver.cuMemsetD8Async(memory, 4, 1, beside));
    assert_int_equal(end_capture(stream, &graph), MM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    OK(gpu.driver.cuEventRecord(fork, stream));
    OK(gpu.driver.cuEventSynchronize(fork));
    OK(gpu.driver.cuEventDestroy(fork));
    OK(gpu.driver.cuEventDestroy(join));
    OK(gpu.driver.cuStreamDestroy(stream));
    OK(gpu.driver.cuStreamDestroy(beside));
    OK(gpu.driver.cuMemFree(memory));
}

/* ---- Memory that several devices map ---- */

static struct mm_cu_memory_kind kind_of(int ordinal) {
    return (struct mm_cu_memory_kind){.type = MM_CU_MEMORY_PINNED,
                                      .handle_types = MM_CU_HANDLE_DESCRIPTOR,
                                      .location = {MM_CU_LOCATION_DEVICE, ordinal}};
}

static size_t granularity(void) {
    const struct mm_cu_memory_kind kind = kind_of(gpu.device.ordinal);
    size_t bytes = 0;
    OK(gpu.driver.cuMemGetAllocationGranularity(&bytes, &kind, MM_CU_GRANULARITY_MINIMUM));
    return bytes;
}

static mm_cu_pointer map(mm_cu_memory memory, size_t bytes, int ordinal) {
    const struct mm_cu_memory_access access = {{MM_CU_LOCATION_DEVICE, ordinal}, MM_CU_ACCESS_READ_WRITE};
    mm_cu_pointer address = 0;
    OK(gpu.driver.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(gpu.driver.cuMemMap(address, bytes, 0, memory, 0));
    assert_int_equal(gpu.driver.cuMemsetD8Async(address, 1, bytes, NULL), MM_CUDA_ERROR_INVALID_VALUE);
    OK(gpu.driver.cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

static void unmap(mm_cu_pointer address, size_t bytes) {
    OK(gpu.driver.cuMemUnmap(address, bytes));
    OK(gpu.driver.cuMemAddressFree(address, bytes));
}

static void enter(int ordinal) {
    mm_cu_context context;
    OK(gpu.driver.cuDevicePrimaryCtxRetain(&context, ordinal));
    OK(gpu.driver.cuCtxPushCurrent(context));
}

static void leave(int ordinal) {
    mm_cu_context popped;
    OK(gpu.driver.cuCtxPopCurrent(&popped));
    OK(gpu.driver.cuDevicePrimaryCtxRelease(ordinal));
}

/* Made on one device, mapped on it and on another, where it stays until that one unmaps it too. */
static void shared_memory(void **state) {
    (void)state;
    const int own = gpu.device.ordinal, other = own + 1;
    const struct mm_cu_memory_kind kind = kind_of(own);
    const size_t bytes = granularity();
    size_t before, after, total;
    mm_cu_memory memory, imported;
    int descriptor = -1;
    unsigned char back = 0;
    OK(gpu.driver.cuMemGetInfo(&before, &total));
    OK(gpu.driver.cuMemCreate(&memory, bytes, &kind, 0));
    const mm_cu_pointer here = map(memory, bytes, own);
    OK(gpu.driver.cuMemsetD8Async(here, 7, bytes, NULL));
    OK(gpu.driver.cuCtxSynchronize());
    OK(gpu.driver.cuMemExportToShareableHandle(&descriptor, memory, MM_CU_HANDLE_DESCRIPTOR, 0));

    enter(other);
    OK(gpu.driver.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)descriptor, MM_CU_HANDLE_DESCRIPTOR));
    const mm_cu_pointer there = map(imported, bytes, other);
    OK(gpu.driver.cuMemRelease(imported));
    OK(gpu.driver.cuMemcpyDtoHAsync(&back, there + bytes - 1, 1, NULL));
    assert_int_equal(back, 7);
    leave(other);

    OK(gpu.driver.cuMemRelease(memory));
    unmap(here, bytes);
    assert_int_equal(gpu.driver.cuMemcpyDtoHAsync(&back, here, 1, NULL), MM_CUDA_ERROR_INVALID_VALUE);
    OK(gpu.driver.cuMemGetInfo(&after, &total));
    assert_int_equal(before - after, bytes);
    enter(other);
    OK(gpu.driver.cuMemcpyDtoHAsync(&back, there, 1, NULL));
    assert_int_equal(back, 7);
    unmap(there, bytes);
    leave(other);
    OK(gpu.driver.cuMemGetInfo(&after, &total));
    assert_int_equal(before, after);
    assert_int_equal(
        gpu.driver.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)descriptor, MM_CU_HANDLE_DESCRIPTOR),
        MM_CUDA_ERROR_INVALID_HANDLE);
    close(descriptor);
}

/* What the real driver refuses too. */
static void refused_sharing(void **state) {
    (void)state;
    struct mm_cu_memory_kind kind = kind_of(gpu.device.ordinal);
    const size_t bytes = granularity();
    mm_cu_memory memory, imported;
    mm_cu_pointer address;
    size_t available, total;
    OK(gpu.driver.cuMemGetInfo(&available, &total));
    assert_int_equal(gpu.driver.cuMemCreate(&memory, bytes + 1, &kind, 0), MM_CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(gpu.driver.cuMemCreate(&memory, total / bytes * bytes + bytes, &kind, 0),
                     MM_CUDA_ERROR_OUT_OF_MEMORY);
    kind.location.id = 8;
    assert_int_equal(gpu.driver.cuMemCreate(&memory, bytes, &kind, 0), MM_CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(
        gpu.driver.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)STDIN_FILENO, MM_CU_HANDLE_DESCRIPTOR),
        MM_CUDA_ERROR_INVALID_VALUE);
    kind.location.id = gpu.device.ordinal;
    OK(gpu.driver.cuMemCreate(&memory, bytes, &kind, 0));
    OK(gpu.driver.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    assert_int_equal(gpu.driver.cuMemMap(address, bytes, 0, memory + 1, 0), MM_CUDA_ERROR_INVALID_VALUE);
    OK(gpu.driver.cuMemMap(address, bytes, 0, memory, 0));
    assert_int_equal(gpu.driver.cuMemMap(address, bytes, 0, memory, 0), MM_CUDA_ERROR_INVALID_VALUE);
    OK(gpu.driver.cuMemRelease(memory));
    assert_int_equal(gpu.driver.cuMemRelease(memory), MM_CUDA_ERROR_INVALID_VALUE);
    unmap(address, bytes);
    assert_int_equal(gpu.driver.cuMemUnmap(address, bytes), MM_CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(gpu.driver.cuMemAddressFree(address, bytes), MM_CUDA_ERROR_INVALID_VALUE);
}

static void devices_by_bus_id(void **state) {
    (void)state;
    mm_cu_device found = -1;
    char id[24];
    OK(gpu.driver.cuDeviceGetPCIBusId(id, sizeof id, 5));
    OK(gpu.driver.cuDeviceGetByPCIBusId(&found, id));
    assert_int_equal(found, 5);
    assert_int_equal(gpu.driver.cuDeviceGetByPCIBusId(&found, "simulated:40"), MM_CUDA_ERROR_INVALID_DEVICE);
}

/* ---- Several ranks ---- */

/* Every rank fills memory of a device of its own, many times; whoever waits waits for its own work alone. */
struct rank {
    pthread_t thread;
    int ordinal, wrong;
};

static void *rank_main(void *argument) {
    struct rank *rank = argument;
    const struct mm_driver *driver = &gpu.driver;
    mm_cu_context context, popped;
    mm_cu_pointer memory = 0;
    unsigned char back[BYTES];
    rank->wrong += driver->cuDevicePrimaryCtxRetain(&context, rank->ordinal) != MM_CUDA_SUCCESS;
    rank->wrong += driver->cuCtxPushCurrent(context) != MM_CUDA_SUCCESS;
    rank->wrong += driver->cuMemAlloc(&memory, BYTES) != MM_CUDA_SUCCESS;
    for (int i = 0; i < 20 + 10 * rank->ordinal; i++) {
        rank->wrong += driver->cuMemsetD8Async(memory, (unsigned char)i, BYTES, NULL) != MM_CUDA_SUCCESS;
        rank->wrong += driver->cuStreamSynchronize(NULL) != MM_CUDA_SUCCESS;
        rank->wrong += driver->cuMemcpyDtoHAsync(back, memory, BYTES, NULL) != MM_CUDA_SUCCESS;
        rank->wrong += back[BYTES - 1] != (unsigned char)i;
    }
    rank->wrong += driver->cuMemFree(memory) != MM_CUDA_SUCCESS;
    rank->wrong += driver->cuCtxPopCurrent(&popped) != MM_CUDA_SUCCESS || popped != context;
    rank->wrong += driver->cuDevicePrimaryCtxRelease(rank->ordinal) != MM_CUDA_SUCCESS;
    return NULL;
}

static void several_ranks(void **state) {
    (void)state;
    struct rank ranks[4] = {{0}};
    for (int r = 0; r < 4; r++) {
        ranks[r].ordinal = r;
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < 4; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].wrong, 0);
    }
}

/* ---- Kernels ---- */

static mmoe_status fill_nan(uint16_t *to, uint32_t cols) {
    struct mm_kernel kernel;
    const struct mm_launch launch = {.ctas = 3, .threads = ROW_THREADS};
    const struct fill_nan_params params = {.to = {to, {0, 1}}, .rows = 1, .cols = cols};
    mmoe_status status = mm_kernel_find(&gpu, "mm_fill_nan", 0, &kernel);
    return status == MMOE_OK ? mm_kernel_launch(&gpu, &kernel, &launch, &params) : status;
}

static void launches(void **state) {
    (void)state;
    struct mm_kernel kernel;
    uint16_t back[BYTES / 2];
    mm_cu_pointer memory = allocate(BYTES);
    OK(gpu.driver.cuMemsetD8Async(memory, 0, BYTES, NULL));
    assert_int_equal(fill_nan((uint16_t *)(uintptr_t)memory, 1000), MMOE_OK);
    OK(gpu.driver.cuMemcpyDtoHAsync(back, memory, BYTES, NULL));
    assert_int_equal(back[999], 0x7fc0);
    assert_int_equal(back[1000], 0);
    assert_int_equal(mm_kernel_find(&gpu, "mm_no_such_kernel", 0, &kernel), MMOE_SYSTEM);
    assert_non_null(strstr(mmoe_last_error(), "CUDA_ERROR_NOT_FOUND"));
    OK(gpu.driver.cuMemFree(memory));
}

/* Refused as the real driver does: shared memory that was not asked for, too many threads, a broken cluster. */
static void refused_launches(void **state) {
    (void)state;
    struct mm_kernel kernel;
    const struct fill_nan_params params = {.rows = 0};
    const struct mm_launch good = {.ctas = 2, .threads = 32, .cluster = 2};
    struct mm_launch bad = good;
    assert_int_equal(mm_kernel_find(&gpu, "mm_fill_nan", 0, &kernel), MMOE_OK);
    assert_int_equal(mm_kernel_launch(&gpu, &kernel, &good, &params), MMOE_OK);
    bad.ctas = 3;
    assert_int_equal(mm_kernel_launch(&gpu, &kernel, &bad, &params), MMOE_SYSTEM);
    bad = good;
    bad.threads = ROW_THREADS + 32;
    assert_int_equal(mm_kernel_launch(&gpu, &kernel, &bad, &params), MMOE_SYSTEM);
    kernel.shared_bytes = 1;
    assert_int_equal(mm_kernel_launch(&gpu, &kernel, &good, &params), MMOE_SYSTEM);
    assert_non_null(
        strstr(mmoe_last_error(), "launching kernel mm_fill_nan with 2 CTAs of 32 threads in clusters of 2"));
    OK(gpu.driver.cuStreamSynchronize(NULL));
}

static void tensor_maps(void **state) {
    (void)state;
    struct tensor_map map;
    mm_cu_pointer memory = allocate(BYTES);
    struct tensor_map_desc description = {.base = (void *)(uintptr_t)memory,
                                          .dims = 2,
                                          .element = TENSOR_BF16,
                                          .swizzle = TENSOR_SWIZZLE_128B,
                                          .size = {64, 32},
                                          .stride = {128},
                                          .box = {64, 16}};
    assert_int_equal(mm_tensor_map_encode(&gpu, &description, "a matrix", &map), MMOE_OK);
    description.stride[0] = 130;
    assert_int_equal(mm_tensor_map_encode(&gpu, &description, "a matrix", &map), MMOE_SYSTEM);
    OK(gpu.driver.cuMemFree(memory));
}

/* The last test: after a fault nothing runs any more, as on a GPU. */
static void a_fault_is_an_error(void **state) {
    (void)state;
    mm_cu_pointer memory = allocate(64);
    assert_int_equal(fill_nan((uint16_t *)(uintptr_t)memory, 33), MMOE_OK);
    assert_int_equal(gpu.driver.cuStreamSynchronize(NULL), MM_CUDA_ERROR_ILLEGAL_INSTRUCTION);
    assert_int_equal(gpu.driver.cuStreamSynchronize(NULL), MM_CUDA_ERROR_ILLEGAL_INSTRUCTION);
    assert_int_equal(gpu.driver.cuMemsetD8Async(memory, 0, 1, NULL), MM_CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),
        cmocka_unit_test(pinned_memory),
        cmocka_unit_test(streams_and_events),
        cmocka_unit_test(graphs),
        cmocka_unit_test(memory_in_streams),
        cmocka_unit_test(accounting),
        cmocka_unit_test(shared_memory),
        cmocka_unit_test(refused_sharing),
        cmocka_unit_test(devices_by_bus_id),
        cmocka_unit_test(several_ranks),
        cmocka_unit_test(launches),
        cmocka_unit_test(refused_launches),
        cmocka_unit_test(tensor_maps),
        cmocka_unit_test(a_fault_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
