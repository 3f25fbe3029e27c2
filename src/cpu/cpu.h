/* The CPU backend: the whole layer in plain C, with OpenBLAS for the products.
 *
 * What each file does, in the order of a call:
 *
 *     backend.c     the table, set-up and tear-down            routing.c     checks and sends ids and weights
 *     sizes.c       bytes of every buffer                      dispatch.c    writes slots, pulls rows
 *     pool.c        threads                                    products.c    the layer's products over runs of rows
 *     convert.c     bf16 <-> fp32, any strides                 combine.c     the sum over k
 *     activation.c  SwiGLU and its gradient                    grouped.c     sums on their experts' ranks
 *     gemm.c        products whose bits a row keeps            wgrad.c       weight gradients
 *     forward.c, backward.c  a call from end to end
 */
#ifndef MM_CPU_CPU_H
#define MM_CPU_CPU_H

#include "backend/backend.h"

extern const struct mm_backend mm_cpu_backend;

#endif
