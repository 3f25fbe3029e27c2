/* The part of the CUDA driver's interface that this library uses, declared here so that it builds without any CUDA
 * header. Numbers and layouts are those of cuda.h, which a test compares where that header is found. */
#ifndef MM_CUDA_DRIVER_API_H
#define MM_CUDA_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/tensor_map_desc.h"

typedef int mm_cu_result;       /* CUresult */
typedef int mm_cu_device;       /* CUdevice: 0 .. count-1 */
typedef uint64_t mm_cu_pointer; /* CUdeviceptr */
typedef uint64_t mm_cu_memory;  /* CUmemGenericAllocationHandle */
typedef struct CUctx_st *mm_cu_context;
typedef struct CUmod_st *mm_cu_module;
typedef struct CUfunc_st *mm_cu_function;
typedef struct CUstream_st *mm_cu_stream; /* NULL: the legacy default stream */
typedef struct CUevent_st *mm_cu_event;
typedef struct CUmemPoolHandle_st *mm_cu_pool; /* CUmemoryPool */

enum mm_cu_result_number {
    MM_CUDA_SUCCESS = 0,
    MM_CUDA_ERROR_INVALID_VALUE = 1,
    MM_CUDA_ERROR_OUT_OF_MEMORY = 2,
    MM_CUDA_ERROR_NOT_INITIALIZED = 3,
    MM_CUDA_ERROR_STUB_LIBRARY = 34,
    MM_CUDA_ERROR_NO_DEVICE = 100,
    MM_CUDA_ERROR_INVALID_DEVICE = 101,
    MM_CUDA_ERROR_INVALID_CONTEXT = 201,
    MM_CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    MM_CUDA_ERROR_INVALID_HANDLE = 400,
    MM_CUDA_ERROR_NOT_FOUND = 500,
    MM_CUDA_ERROR_NOT_READY = 600,
    MM_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    MM_CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    MM_CUDA_ERROR_LAUNCH_FAILED = 719,
    MM_CUDA_ERROR_NOT_SUPPORTED = 801,
    MM_CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    MM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    MM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    MM_CUDA_ERROR_CAPTURED_EVENT = 907,
    MM_CUDA_ERROR_UNKNOWN = 999
};

enum mm_cu_device_attribute {
    MM_CU_MULTIPROCESSOR_COUNT = 16,
    MM_CU_COMPUTE_CAPABILITY_MAJOR = 75,
    MM_CU_COMPUTE_CAPABILITY_MINOR = 76
};

enum mm_cu_p2p_attribute {
    MM_CU_P2P_PERFORMANCE_RANK = 1, /* relative; 0: the best link */
    MM_CU_P2P_ACCESS = 2,
    MM_CU_P2P_NATIVE_ATOMICS = 3
};

enum mm_cu_function_attribute { MM_CU_MAX_DYNAMIC_SHARED_MEMORY = 8 };

enum mm_cu_pointer_attribute { MM_CU_POINTER_MEMORY_TYPE = 2, MM_CU_POINTER_DEVICE_ORDINAL = 9 };
enum mm_cu_memory_type { MM_CU_MEMORY_HOST = 1, MM_CU_MEMORY_DEVICE = 2 };

enum mm_cu_allocation_type { MM_CU_MEMORY_PINNED = 1 };
enum mm_cu_memory_handle { MM_CU_HANDLE_DESCRIPTOR = 1 };
enum mm_cu_memory_granularity { MM_CU_GRANULARITY_MINIMUM = 0 };
enum mm_cu_location_type { MM_CU_LOCATION_DEVICE = 1 };
enum mm_cu_access { MM_CU_ACCESS_READ_WRITE = 3 };

struct mm_cu_location {
    int type;
    int id;
};

struct mm_cu_memory_kind {
    int type;
    int handle_types; /* by which the memory may be passed on */
    struct mm_cu_location location;
    void *only_on_windows;
    struct {
        unsigned char compression, direct_rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct mm_cu_pool_kind {
    int type;
    int handle_types;
    struct mm_cu_location location;
    void *only_on_windows;
    size_t most_bytes; /* 0: as many as there are */
    unsigned short usage;
    unsigned char reserved[54];
};

struct mm_cu_memory_access {
    struct mm_cu_location location; /* who may access */
    int flags;
};

enum mm_cu_capture_status { MM_CU_CAPTURE_NONE = 0, MM_CU_CAPTURE_ACTIVE = 1 };

enum mm_cu_stream_flags { MM_CU_STREAM_DEFAULT = 0, MM_CU_STREAM_NON_BLOCKING = 1 };

enum mm_cu_event_flags { MM_CU_EVENT_TIMED = 0, MM_CU_EVENT_WITHOUT_TIMING = 2 };

enum mm_cu_launch_attribute_id {
    MM_CU_LAUNCH_CLUSTER_DIMENSION = 4,
    MM_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

struct mm_cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int programmatic_serialization;
    } value;
};

struct mm_cu_launch_config {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned shared_bytes; /* dynamic */
    mm_cu_stream stream;
    struct mm_cu_launch_attribute *attributes;
    unsigned attribute_count;
};

enum mm_cu_tensor_type { MM_CU_TENSOR_F32 = 7, MM_CU_TENSOR_BF16 = 9 };
enum mm_cu_tensor_interleave { MM_CU_INTERLEAVE_NONE = 0 };
enum mm_cu_tensor_swizzle { MM_CU_SWIZZLE_NONE = 0, MM_CU_SWIZZLE_128B = 3 };
enum mm_cu_tensor_promotion { MM_CU_PROMOTION_L2_256B = 3 };
enum mm_cu_tensor_fill { MM_CU_FILL_ZERO = 0 };

#endif
