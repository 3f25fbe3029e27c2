/* A forward and a backward from end to end; see struct mm_backend. */
#ifndef MM_CPU_PASSES_H
#define MM_CPU_PASSES_H

#include "backend/backend.h"

mmoe_status mm_cpu_forward(struct mmoe_layer *layer, const mmoe_forward_args *args);
mmoe_status mm_cpu_backward(struct mmoe_layer *layer, const mmoe_backward_args *args);

#endif
