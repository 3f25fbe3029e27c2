/* Graphs of captured calls, through functions of the driver that the library does not call itself. */
#ifndef GPU_GRAPHS_H
#define GPU_GRAPHS_H

#include "cuda/state.h"
#include "support.h"

/* The driver and the device of a rank. */
const struct mm_gpu *gpu_of(const struct rig_rank *rank);

/* A stream of the caller's, which does not wait for the default one. */
bool stream_make(struct rig_rank *rank, mm_cu_stream *stream);
bool stream_await(struct rig_rank *rank, mm_cu_stream stream);
void stream_free(const struct rig_rank *rank, mm_cu_stream stream);

/* What the stream is given between the two is kept in a graph. */
bool capture_begin(struct rig_rank *rank, mm_cu_stream stream);
bool capture_end(struct rig_rank *rank, mm_cu_stream stream, void **graph);

bool graph_launch(struct rig_rank *rank, void *graph, mm_cu_stream stream);
void graph_free(const struct rig_rank *rank, void *graph);

#endif
