/* Fuzz target: npy_parse on any bytes.
 *
 * A file it accepts must describe elements that lie inside the file, and survive being written and read again; a file
 * it refuses must come with a sentence. */
#include "npy.h"
#include "input.h"

#include <stdbool.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_elements(const struct npy *array, const uint8_t *bytes, size_t n) {
    REQUIRE(array->dims >= 0 && array->dims <= NPY_MAX_DIMS);
    bool empty = false;
    for (int d = 0; d < array->dims; d++) {
        REQUIRE(array->shape[d] >= 0);
        empty = empty || array->shape[d] == 0;
    }
    /* The axes beside an empty one may be as long as they like: their product is not formed. */
    int64_t count = empty ? 0 : 1;
    for (int d = 0; d < array->dims && !empty; d++)
        REQUIRE(!__builtin_mul_overflow(count, array->shape[d], &count));
    REQUIRE(count == array->count);
    REQUIRE(array->data >= bytes && array->data <= bytes + n);
    REQUIRE((uint64_t)array->count <= (size_t)(bytes + n - array->data) / npy_type_bytes(array->type));
}

static void check_copy(const struct npy *array) {
    size_t data_bytes = (size_t)array->count * npy_type_bytes(array->type);
    unsigned char *copy = malloc(NPY_HEADER_BYTES + data_bytes);
    REQUIRE(copy != NULL);
    npy_header(array->type, array->shape, array->dims, (char *)copy);
    if (data_bytes > 0)
        memcpy(copy + NPY_HEADER_BYTES, array->data, data_bytes);

    struct npy again;
    char error[256];
    REQUIRE(npy_parse(copy, NPY_HEADER_BYTES + data_bytes, &again, error, sizeof error) == 0);
    REQUIRE(again.type == array->type && again.dims == array->dims && again.count == array->count);
    for (int d = 0; d < array->dims; d++)
        REQUIRE(again.shape[d] == array->shape[d]);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct npy array;
    char error[256] = "";
    if (npy_parse(bytes, n, &array, error, sizeof error) != 0) {
        REQUIRE(memchr(error, '\0', sizeof error) != NULL && error[0] != '\0');
        return 0;
    }
    check_elements(&array, bytes, n);
    for (int64_t i = 0; i < array.count; i++) {
        volatile double number = npy_number(&array, i);
        (void)number;
    }
    check_copy(&array);
    return 0;
}
