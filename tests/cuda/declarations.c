/* What the library declares of the driver's interface, against cuda.h: numbers, sizes and places of fields. There is
 * nothing to run: it compiles or it doesn't. */
#include <cuda.h>

#include "cuda/driver_api.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME(MM_CUDA_SUCCESS, CUDA_SUCCESS);
SAME(MM_CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(MM_CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(MM_CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(MM_CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(MM_CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(MM_CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(MM_CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(MM_CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(MM_CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(MM_CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(MM_CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(MM_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(MM_CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME(MM_CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(MM_CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(MM_CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(MM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(MM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
SAME(MM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
SAME(MM_CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT);
SAME(MM_CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME(MM_CU_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(MM_CU_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(MM_CU_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(MM_CU_P2P_PERFORMANCE_RANK, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK);
SAME(MM_CU_P2P_ACCESS, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED);
SAME(MM_CU_P2P_NATIVE_ATOMICS, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
SAME(MM_CU_MAX_DYNAMIC_SHARED_MEMORY, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(MM_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(MM_CU_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(MM_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME(MM_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(MM_CU_MEMORY_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(MM_CU_HANDLE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(MM_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(MM_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(MM_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(MM_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(MM_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(MM_CU_EVENT_TIMED, CU_EVENT_DEFAULT);
SAME(MM_CU_EVENT_WITHOUT_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(MM_CU_LAUNCH_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(MM_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(MM_CU_TENSOR_F32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(MM_CU_TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(MM_CU_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(MM_CU_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(MM_CU_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(MM_CU_PROMOTION_L2_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(MM_CU_FILL_ZERO, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

SAME(sizeof(mm_cu_pointer), sizeof(CUdeviceptr));
SAME(sizeof(mm_cu_device), sizeof(CUdevice));
SAME(sizeof(mm_cu_result), sizeof(CUresult));
SAME(sizeof(mm_cu_memory), sizeof(CUmemGenericAllocationHandle));
SAME(sizeof(struct tensor_map), sizeof(CUtensorMap));

#define SAME_FIELD(ours, field, theirs, their_field)                                                                   \
    SAME(offsetof(struct ours, field), offsetof(theirs, their_field));                                                 \
    SAME(sizeof(((struct ours *)0)->field), sizeof(((theirs *)0)->their_field))

SAME(sizeof(struct mm_cu_launch_attribute), sizeof(CUlaunchAttribute));
SAME_FIELD(mm_cu_launch_attribute, id, CUlaunchAttribute, id);
SAME_FIELD(mm_cu_launch_attribute, value, CUlaunchAttribute, value);
SAME_FIELD(mm_cu_launch_attribute, value.cluster.y, CUlaunchAttribute, value.clusterDim.y);
SAME_FIELD(mm_cu_launch_attribute, value.programmatic_serialization, CUlaunchAttribute,
           value.programmaticStreamSerializationAllowed);

SAME(sizeof(struct mm_cu_launch_config), sizeof(CUlaunchConfig));
SAME_FIELD(mm_cu_launch_config, grid_x, CUlaunchConfig, gridDimX);
SAME_FIELD(mm_cu_launch_config, grid_z, CUlaunchConfig, gridDimZ);
SAME_FIELD(mm_cu_launch_config, block_x, CUlaunchConfig, blockDimX);
SAME_FIELD(mm_cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(mm_cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_FIELD(mm_cu_launch_config, attributes, CUlaunchConfig, attrs);
SAME_FIELD(mm_cu_launch_config, attribute_count, CUlaunchConfig, numAttrs);

SAME(sizeof(struct mm_cu_memory_kind), sizeof(CUmemAllocationProp));
SAME_FIELD(mm_cu_memory_kind, type, CUmemAllocationProp, type);
SAME_FIELD(mm_cu_memory_kind, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(mm_cu_memory_kind, location.type, CUmemAllocationProp, location.type);
SAME_FIELD(mm_cu_memory_kind, location.id, CUmemAllocationProp, location.id);
SAME_FIELD(mm_cu_memory_kind, only_on_windows, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(mm_cu_memory_kind, flags.direct_rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_FIELD(mm_cu_memory_kind, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME(sizeof(struct mm_cu_memory_access), sizeof(CUmemAccessDesc));
SAME_FIELD(mm_cu_memory_access, location.id, CUmemAccessDesc, location.id);
SAME_FIELD(mm_cu_memory_access, flags, CUmemAccessDesc, flags);
