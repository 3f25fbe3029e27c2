/* Memory of a GPU, and copies to and from it. The context is current in every call. */
#ifndef MM_CUDA_DEVICE_MEMORY_H
#define MM_CUDA_DEVICE_MEMORY_H

#include "cuda/gpu.h"

/* A buffer that grows and never shrinks; contents are not kept. A zeroed struct is an empty buffer. */
struct mm_device_buffer {
    mm_cu_pointer address;
    size_t bytes;
};

/* Makes room for `bytes`, exactly; does nothing when there is enough. On failure the buffer is empty; when memory is
 * short, the text says how much was asked and how much is free. */
mmoe_status mm_device_reserve(const struct mm_gpu *gpu, struct mm_device_buffer *buffer, size_t bytes,
                              const char *what);
/* What `function` gave when memory was asked for, in the same way. */
mmoe_status mm_device_memory_status(const struct mm_gpu *gpu, mm_cu_result result, const char *function, size_t bytes,
                                    const char *what);
void mm_device_free(const struct mm_gpu *gpu, struct mm_device_buffer *buffer);

/* The same in a stream, for buffers that calls make: what is queued in it before may use what is freed, and what is
 * queued behind what is made. Neither waits for the GPU, where any kernel may run that waits for other ranks; only when
 * memory is short the stream is awaited. */
mmoe_status mm_device_reserve_in(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_device_buffer *buffer,
                                 size_t bytes, const char *what);
void mm_device_free_in(const struct mm_gpu *gpu, mm_cu_stream stream, struct mm_device_buffer *buffer);

/* Fills memory with zeros, and waits for that. */
mmoe_status mm_device_clear(const struct mm_gpu *gpu, mm_cu_pointer memory, size_t bytes, const char *doing);

/* Queued in the stream. Host memory that is not pinned has been read, or is written, when the call returns. */
mmoe_status mm_copy_to_device(const struct mm_gpu *gpu, mm_cu_pointer to, const void *from, size_t bytes,
                              mm_cu_stream stream, const char *doing);
mmoe_status mm_copy_to_host(const struct mm_gpu *gpu, void *to, mm_cu_pointer from, size_t bytes, mm_cu_stream stream,
                            const char *doing);

#endif
