/* NumPy's .npy files, versions 1 and 2: C order, little endian, the element types that the command exchanges.
 *
 * Files come from anywhere, so every size is checked against the bytes that are really there and nothing is allocated
 * from a number in a file. bf16 has no type in NumPy: its 16 bits travel as <u2. */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NPY_MAX_DIMS 4
#define NPY_HEADER_BYTES 192 /* of the headers written here */

enum npy_type { NPY_F32, NPY_F64, NPY_I32, NPY_I64, NPY_U16 };

struct npy {
    enum npy_type type;
    int dims;
    int64_t shape[NPY_MAX_DIMS];
    int64_t count;             /* elements */
    const unsigned char *data; /* inside the bytes that were parsed; any alignment */
};

/* Bytes of an element, and the name NumPy gives the type, such as "<f4". */
size_t npy_type_bytes(enum npy_type type);
const char *npy_type_name(enum npy_type type);

/* Reads a whole file in memory. Returns 0; or -1, with a sentence in `error` that says what is wrong. */
int npy_parse(const unsigned char *bytes, size_t n, struct npy *out, char *error, size_t error_bytes);

/* Element `i` as a number; integers of <i8 outside 2^53 need npy_integer, which is for integer types only. */
double npy_number(const struct npy *array, int64_t i);
int64_t npy_integer(const struct npy *array, int64_t i);

/* "[2, 3]" */
void npy_shape_text(const int64_t *shape, int dims, char *text, size_t bytes);

/* The header of a file that holds such an array: NPY_HEADER_BYTES bytes. */
void npy_header(enum npy_type type, const int64_t *shape, int dims, char header[NPY_HEADER_BYTES]);

/* A file mapped for reading; map is NULL when there is none. */
struct npy_file {
    struct npy array;
    void *map;
    size_t bytes;
};

int npy_open(struct npy_file *file, const char *path, char *error, size_t error_bytes);
void npy_close(struct npy_file *file);

#endif
