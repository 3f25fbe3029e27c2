/* What a traced kernel tells, mm_forward_traced beside what mm_forward does. C and C++.
 *
 * A warp's time is cut into spans, each from the end of the one before to the moment at which something was done: so
 * the spans of a role don't overlap, and add up to its time. Times are cycles of the multiprocessor, modulo 2^32; each
 * CTA anchors them twice in the global timer, which all multiprocessors share. */
#ifndef MM_KERNELS_TRACE_PARAMS_H
#define MM_KERNELS_TRACE_PARAMS_H

#include <stdalign.h>
#include <stdint.h>

#include "kernels/tile_shape.h"

/* Whose records they are: those of a warp, by its number, or those of what is on its way. */
enum trace_role {
    TRACE_LOADER = 0,   /* takes tasks and fills stages */
    TRACE_GROUPER = 1,  /* sums and pushes what a rank computed of a token, where that is asked for */
    TRACE_FETCHER = 2,  /* moves token rows */
    TRACE_STORER = 3,   /* stores activations, pushes results */
    TRACE_CONSUMER = 4, /* and the next ones: the first warp of each warpgroup tells of tiles, all tell of sums */
    TRACE_FLIGHTS = TRACE_CONSUMER + CONSUMER_WARPS, /* pieces on their way to the fetcher, CARRIES of them at a time */
    TRACE_ROLES
};

/* What a span was spent on. "(task)": the record has the block and tile of a task; "(gradient)": expert and tile of a
 * gradient of weights. */
enum trace_kind {
    /* Loader */
    TRACE_AWAIT_ROWS = 1,  /* (task) token rows were not all there */
    TRACE_AWAIT_H,         /* (task) activations were not all there */
    TRACE_AWAIT_GATE_UP,   /* (task) gate and up, computed again, were not all there */
    TRACE_AWAIT_GRADIENTS, /* (task) gradients of gate and up were not all there */
    TRACE_AWAIT_QUEUE,     /* (task) the other warps had tasks enough */
    TRACE_LOAD_GATE_UP,    /* (task) `waited` for free stages, as all of these */
    TRACE_LOAD_DOWN,
    TRACE_LOAD_DGATE_UP, /* of gradients of gate and up */
    TRACE_LOAD_DX,
    TRACE_LOAD_WGRAD, /* (gradient) */
    /* Fetcher */
    TRACE_AWAIT_TOKENS, /* those of the one rank in `ranks` were not in its slot */
    TRACE_CLEAR_PADS,   /* `rows` pads of a block */
    TRACE_AWAIT_PIECE,  /* no piece of a token had come */
    TRACE_SPREAD,       /* one that had come was sent to its token's `rows`, and others were asked for */
    /* Flights */
    TRACE_PULL, /* piece `tile` of a token of the one rank in `ranks`, `bytes` long */
    /* Storer */
    TRACE_AWAIT_TASK,     /* (consumers too) no task was there */
    TRACE_AWAIT_TILE,     /* (task) nothing of it was staged */
    TRACE_STORE,          /* (task) activations, or gate and up; `waited` for the rest to be staged */
    TRACE_STORE_DGATE_UP, /* the same */
    TRACE_PUSH,    /* (task; grouper: block) `rows` of `bytes` each to the `ranks`, `peer_rows` of them not to the own;
                      likewise */
    TRACE_PUSH_DW, /* (task, the last of its block) the same, but `waited` for nothing */
    /* Consumers */
    TRACE_MULTIPLY_GATE_UP, /* (task) `waited` for stages to be filled, as all of these */
    TRACE_MULTIPLY_DOWN,
    TRACE_MULTIPLY_DGATE_UP,
    TRACE_MULTIPLY_DX,
    TRACE_MULTIPLY_WGRAD, /* (gradient) */
    TRACE_STAGE_GATE_UP,  /* (task) the epilogue; `waited` for parts to be stored, as all of these */
    TRACE_STAGE_DOWN,
    TRACE_STAGE_DX,
    TRACE_STAGE_WGRAD,   /* (gradient) `waited` for old values too */
    TRACE_DIFFERENTIATE, /* (task) the epilogue of DGATE_UP; `waited` for gate and up to come */
    /* Those, and warps that only sum */
    TRACE_AWAIT_RESULTS, /* results of this rank's tokens had not all come; grouper: blocks of results of this rank */
    TRACE_COPY_DW,       /* gradients of router weights that had come went to where the caller wants them */
    TRACE_SUM,           /* of `rows` tokens from `token` on */
    TRACE_KINDS
};

struct trace_record {
    alignas(16) uint32_t begin;
    uint32_t end, waited, kind;
    uint32_t block, tile, token, rows;
    uint32_t peer_rows, bytes, ranks_low, ranks_high; /* a bit each rank */
};

/* Zero before the launch, and so it stays when the CTA has nothing to tell. */
struct trace_cta {
    uint64_t ns[2]; /* the global timer when the consumers began and ended */
    uint32_t cycles[2];
    uint32_t multiprocessor;
    uint32_t records[TRACE_ROLES]; /* those past the room were not written */
};

struct trace_params {
    struct trace_cta *ctas;
    struct trace_record *records; /* [CTAs, TRACE_ROLES, room] */
    uint32_t room;
};

/* A traced CTA's logs lie at the end of the dynamic shared memory that a CTA can have. */
#define TRACE_LOG_BYTES 16
#define TRACE_OFFSET (227 * 1024 - 256)
#define TRACED_SMEM_BYTES (TRACE_OFFSET + TRACE_ROLES * TRACE_LOG_BYTES)

#endif
