/* What the host side says of machines that can't run it, and of those that can: each is a fake libcuda.so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/describe.h"
#include "cuda/device_memory.h"
#include "cuda/images.h"
#include "cuda/kernel.h"
#include "fakes.h"

static const struct mm_device_wish usual = {.current = true};

static void assert_text(const char *text, const char *part) {
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static void assert_no_driver(mmoe_status expected, const char *part) {
    struct mm_driver driver;
    assert_int_equal(mm_driver_open(&driver, MM_DRIVER_VERSION_NEEDED), expected);
    assert_text(mmoe_last_error(), part);
    assert_null(driver.library);
}

static void no_driver(void **state) {
    (void)state;
    setenv("MEGAMOE_LIBCUDA", "libcuda_that_is_nowhere.so.1", 1);
    assert_no_driver(MMOE_UNSUPPORTED, "no CUDA driver: libcuda_that_is_nowhere.so.1");
    setenv("MEGAMOE_LIBCUDA", "", 1); /* the usual one: whatever this machine has, its name is asked for */
    struct mm_driver driver;
    if (mm_driver_open(&driver, MM_DRIVER_VERSION_NEEDED) == MMOE_OK)
        mm_driver_close(&driver);
    else
        assert_text(mmoe_last_error(), "libcuda.so.1");
}

static void not_a_driver(void **state) {
    (void)state;
    fake_use("incomplete");
    assert_no_driver(MMOE_UNSUPPORTED, "is not a CUDA driver that can be used: it has no function cuMemHostAlloc");
    setenv("MEGAMOE_LIBCUDA", "libm.so.6", 1);
    assert_no_driver(MMOE_UNSUPPORTED, "libm.so.6 is not a CUDA driver that can be used: it has no function cuInit");
}

/* Too old comes before what an old driver lacks. */
static void old_driver(void **state) {
    (void)state;
    fake_use("old");
    assert_no_driver(MMOE_UNSUPPORTED, "too old: it is for CUDA 11.8, expected 12.0 or newer");
    struct mm_driver driver;
    fake_use("hopper");
    assert_int_equal(mm_driver_open(&driver, 13010), MMOE_UNSUPPORTED);
    assert_text(mmoe_last_error(), "it is for CUDA 13.0, expected 13.1 or newer");
}

static void no_device(void **state) {
    (void)state;
    fake_use("empty");
    assert_no_driver(MMOE_UNSUPPORTED, "starting the CUDA driver: cuInit gave CUDA_ERROR_NO_DEVICE (100)");
}

static void assert_absent(const char *name, const char *part) {
    char detail[MM_ERROR_BYTES] = "";
    struct mm_gpu gpu;
    fake_use(name);
    assert_false(mm_cuda_present(detail, sizeof detail));
    assert_text(detail, part);
    assert_int_equal(mm_gpu_open(&gpu, &usual), MMOE_UNSUPPORTED);
    assert_text(mmoe_last_error(), part);
    assert_int_equal(fake_living(), 0);
}

static void wrong_architecture(void **state) {
    (void)state;
    assert_absent("ampere", "no suitable GPU: expected one of compute capability 9.0, found 0: FAKE 80 of compute "
                            "capability 8.0, 1: FAKE 100 of compute capability 10.0");
    assert_absent("current", "the current CUDA context is on GPU 0: FAKE 80 of compute capability 8.0, expected "
                             "compute capability 9.0");
}

/* Without images and without a driver that needs none. */
static void no_kernels(void **state) {
    (void)state;
    if (mm_images[0].name != NULL) {
        print_message("not run: this build holds kernels\n");
        skip();
    }
    assert_absent("hopper_real", "built without nvcc");
    char detail[MM_ERROR_BYTES] = "";
    setenv("MEGAMOE_LIBCUDA", "libcuda_that_is_nowhere.so.1", 1);
    assert_false(mm_cuda_present(detail, sizeof detail));
    assert_text(detail, "built without nvcc");
}

static void suitable(void **state) {
    (void)state;
    char detail[MM_ERROR_BYTES] = "";
    struct mm_gpu gpu;
    fake_use("hopper");
    mm_fail(MMOE_SYSTEM, "before");
    assert_true(mm_cuda_present(detail, sizeof detail));
    assert_string_equal(mmoe_last_error(), "before");
    assert_text(detail, "GPU 1, FAKE 90, driver for CUDA 13.0");
    assert_int_equal(mm_gpu_open(&gpu, &usual), MMOE_OK);
    assert_int_equal(gpu.device.ordinal, 1);
    assert_int_equal(gpu.device.multiprocessors, 132);
    assert_int_equal(fake_living(), 2 + gpu.module_count); /* the context and the pool, too */
    mm_gpu_close(&gpu);
    mm_gpu_close(&gpu);
    assert_int_equal(fake_living(), 0);
}

/* Asking about a machine leaves the thread's error text alone also when the answer is no. */
static void asking_is_no_failure(void **state) {
    (void)state;
    char detail[MM_ERROR_BYTES] = "";
    setenv("MEGAMOE_LIBCUDA", "libcuda_that_is_nowhere.so.1", 1);
    mm_fail(MMOE_SYSTEM, "before");
    assert_false(mm_cuda_present(detail, sizeof detail));
    assert_false(mm_cuda_describe_device(0, detail, sizeof detail));
    assert_string_equal(mmoe_last_error(), "before");
}

static void failed_load(void **state) {
    (void)state;
    struct mm_gpu gpu;
    fake_use("unloadable");
    assert_int_equal(mm_gpu_open(&gpu, &usual), MMOE_UNSUPPORTED);
    assert_text(mmoe_last_error(), "loading kernels: cuModuleLoadData gave CUDA_ERROR_FAKE (209): a fake error");
    assert_int_equal(fake_living(), 0);
}

static void devices(void **state) {
    (void)state;
    char text[512] = "";
    fake_use("hopper");
    assert_true(mm_cuda_describe_device(1, text, sizeof text));
    assert_text(text, "GPU 1, FAKE 90, 0000:01:00.0, compute capability 9.0, 132 multiprocessors, 2.0 GiB; NVLink");
    assert_text(text, "; to GPU 0: peer access, native atomics, performance rank 0; to GPU 2: peer access");
    assert_true(mm_cuda_describe_device(0, text, sizeof text));
    assert_text(text, "; to GPU 2: not told");
    assert_true(mm_cuda_describe_device(3, text, sizeof text));
    assert_text(text, "; to GPU 1: no peer access");
    assert_false(mm_cuda_describe_device(4, text, sizeof text));
    char small[8];
    assert_true(mm_cuda_describe_device(0, small, sizeof small));
    assert_string_equal(small, "GPU 0, ");
}

static void memory(void **state) {
    (void)state;
    struct mm_gpu gpu;
    struct mm_device_buffer buffer = {0};
    fake_use("hopper");
    assert_int_equal(mm_gpu_open(&gpu, &usual), MMOE_OK);
    const int before = fake_living();
    assert_int_equal(mm_device_reserve(&gpu, &buffer, 100, "the rows"), MMOE_OK);
    assert_int_equal(mm_device_reserve(&gpu, &buffer, 50, "the rows"), MMOE_OK);
    assert_int_equal(buffer.address, 100); /* the fake's address is the size asked */
    assert_int_equal(mm_device_reserve(&gpu, &buffer, 101, "the rows"), MMOE_OK);
    assert_int_equal(buffer.address, 101);
    assert_int_equal(fake_living(), before + 1);
    mm_device_free(&gpu, &buffer);
    assert_int_equal(fake_living(), before);
    assert_int_equal(mm_device_reserve_in(&gpu, NULL, &buffer, 100, "the rows"), MMOE_OK);
    assert_int_equal(mm_device_reserve_in(&gpu, NULL, &buffer, 99, "the rows"), MMOE_OK);
    assert_int_equal(buffer.address, 100);
    assert_int_equal(mm_device_reserve_in(&gpu, NULL, &buffer, 101, "the rows"), MMOE_OK);
    assert_int_equal(buffer.address, 101);
    assert_int_equal(fake_living(), before + 1);
    mm_device_free_in(&gpu, NULL, &buffer);
    assert_int_equal(fake_living(), before);
    mm_gpu_close(&gpu);
}

static void full_memory(void **state) {
    (void)state;
    struct mm_gpu gpu;
    struct mm_device_buffer buffer = {0};
    fake_use("full");
    assert_int_equal(mm_gpu_open(&gpu, &usual), MMOE_OK);
    assert_int_equal(mm_device_reserve(&gpu, &buffer, 4096, "the token rows"), MMOE_OUT_OF_MEMORY);
    assert_string_equal(mmoe_last_error(), "no memory on GPU 0, FAKE 90, for the token rows: 4096 bytes asked, 1000 of "
                                           "2000 free");
    assert_int_equal(mm_device_reserve_in(&gpu, NULL, &buffer, 4095, "the token rows"), MMOE_OUT_OF_MEMORY);
    assert_string_equal(mmoe_last_error(), "no memory on GPU 0, FAKE 90, for the token rows: 4095 bytes asked, 1000 of "
                                           "2000 free");
    assert_int_equal(buffer.address, 0);
    assert_int_equal(buffer.bytes, 0);
    mm_gpu_close(&gpu);
}

static void launches(void **state) {
    (void)state;
    struct mm_gpu gpu;
    struct mm_kernel kernel;
    const int parameters = 42, wrong = 43;
    struct mm_launch launch = {.ctas = 132, .threads = 384, .cluster = 2, .overlapping = true};
    fake_use("hopper");
    assert_int_equal(mm_gpu_open(&gpu, &usual), MMOE_OK);
    assert_int_equal(mm_kernel_find(&gpu, "unknown", 0, &kernel), MMOE_SYSTEM);
    assert_text(mmoe_last_error(), "finding kernel unknown: cuModuleGetFunction gave CUDA_ERROR_FAKE (500)");
    assert_int_equal(mm_kernel_find(&gpu, "known", 232449, &kernel), MMOE_SYSTEM);
    assert_text(mmoe_last_error(), "allowing kernel known 232449 bytes of shared memory");
    assert_int_equal(mm_kernel_find(&gpu, "known", 1024, &kernel), MMOE_OK);
    assert_int_equal(mm_kernel_launch(&gpu, &kernel, &launch, &parameters), MMOE_OK);
    assert_int_equal(mm_kernel_launch(&gpu, &kernel, &launch, &wrong), MMOE_SYSTEM);
    assert_text(mmoe_last_error(), "launching kernel known with 132 CTAs of 384 threads in clusters of 2");
    mm_gpu_close(&gpu);
}

static void encoding_failure(void **state) {
    (void)state;
    struct mm_gpu gpu;
    struct tensor_map map;
    const struct tensor_map_desc description = {.dims = 2};
    fake_use("hopper");
    assert_int_equal(mm_gpu_open(&gpu, &usual), MMOE_OK);
    assert_int_equal(mm_tensor_map_encode(&gpu, &description, "the token rows", &map), MMOE_UNSUPPORTED);
    assert_text(mmoe_last_error(), "making the tensor map of the token rows: cuTensorMapEncodeTiled gave");
    mm_gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver),
        cmocka_unit_test(not_a_driver),
        cmocka_unit_test(old_driver),
        cmocka_unit_test(no_device),
        cmocka_unit_test(wrong_architecture),
        cmocka_unit_test(no_kernels),
        cmocka_unit_test(suitable),
        cmocka_unit_test(asking_is_no_failure),
        cmocka_unit_test(failed_load),
        cmocka_unit_test(devices),
        cmocka_unit_test(memory),
        cmocka_unit_test(full_memory),
        cmocka_unit_test(launches),
        cmocka_unit_test(encoding_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
