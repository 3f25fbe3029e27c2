/* A view of global memory for the tensor copy engine, in plain terms: what the host side encodes for the driver and the
 * simulator for itself. Dimensions are innermost first. */
#ifndef MM_KERNELS_TENSOR_MAP_DESC_H
#define MM_KERNELS_TENSOR_MAP_DESC_H

#include <stdalign.h>
#include <stdint.h>

#define TENSOR_MAP_MAX_DIMS 5

enum tensor_element { TENSOR_BF16, TENSOR_F32 };
enum tensor_swizzle { TENSOR_SWIZZLE_NONE, TENSOR_SWIZZLE_128B };

struct tensor_map_desc {
    void *base;                               /* 16-byte aligned, on the device */
    uint32_t dims;                            /* 1 .. 5 */
    enum tensor_element element;              /* what a store-and-add adds, and the size of an element */
    enum tensor_swizzle swizzle;              /* of the box in shared memory; with 128B the box's rows are 128 bytes */
    uint64_t size[TENSOR_MAP_MAX_DIMS];       /* elements */
    uint64_t stride[TENSOR_MAP_MAX_DIMS - 1]; /* bytes, of dimensions 1 ..: multiples of 16 */
    uint32_t box[TENSOR_MAP_MAX_DIMS];        /* elements, 1 .. 256; the innermost row is a multiple of 16 bytes */
};

/* The encoded view, as it lies in a kernel's parameters. */
struct tensor_map {
    alignas(64) uint64_t opaque[16];
};

#endif
