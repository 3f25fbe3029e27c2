/* megamoe: a whole mixture-of-experts (MoE) layer for training, forward and backward.
 *
 * This header is the complete public interface and its manual. Everything else is private.
 *
 * What the layer computes, for each token t of a rank (silu(z) = z / (1 + exp(-z))):
 *
 *     y[t] = sum over k of  w[t,k] * W2_e ( silu(W1_e x[t]) * (W3_e x[t]) ),   e = ids[t,k]
 *
 * Letters: W ranks of the expert-parallel (EP) group, T tokens on this rank (may differ from rank to
 * rank and call to call, 0 included), K top-k, E experts in all, El = E / W experts of a rank (rank r
 * owns experts r*El .. r*El + El - 1), H hidden size, I expert intermediate size. W1 is the gate
 * projection, W3 the up projection, W2 the down projection. A "slot" is one (token, k); a "row" is a
 * used slot on the rank of its expert.
 *
 * A program does this:
 *
 *     1. makes one group (mmoe_group_create_...): the ranks, their shared memory, the time limits;
 *     2. makes a layer (mmoe_layer_create) for each MoE layer of the model;
 *     3. makes saved states (mmoe_saved_create), one for each forward whose backward is still to come;
 *     4. calls mmoe_forward and mmoe_backward, in the same order on every rank;
 *     5. destroys them in the opposite order.
 *
 * Errors. Every function that can fail returns an mmoe_status; mmoe_last_error() then holds one sentence,
 * for the calling thread, that names the argument, its value and what was expected. Arguments are checked
 * before anything is written. A rank that refuses a call tells its peers, which return MMOE_REFUSED
 * with its reason: nobody is left waiting, and the next call works. An error found after the ranks have
 * begun a call (a peer died, a time limit passed) breaks the group: y, dx, dw and overwritten weight
 * gradients are then filled with NaN, and each later call fails at once with MMOE_BROKEN and the first cause, and
 * writes nothing. Accumulated weight gradients are left as they were; on GPUs, where a part may have been added by
 * then, they are spoilt when the error text says so.
 *
 * Repeatability. The same inputs give the same bits on every run and at any number of threads. y, dx and
 * dw of a token do not depend on what else is in the batch. Tokens concatenated in rank order give the
 * same y, dx, dw and weight gradients, bit for bit, at W = 1, 2, 4, 8 on one backend and machine; y with
 * the exact combine alone.
 *
 * Devices. With a backend that works on a device, the addresses in tensors (of `data`, and those that `experts`
 * lists) are of the memory of the group's device. A call queues its work on `stream` and may return before it is
 * done: outputs are complete, and inputs may be changed, once the stream has come that far. A call that is given a
 * `report` waits for its end. What the device finds after a call has returned is told once, by a later call or by
 * mmoe_group_check: of the first call that failed, and how many after it.
 *
 * Graphs. A CUDA graph can hold calls of layers with a fixed capacity, without a report and with weights and gradients
 * that are not given by a pointer an expert. A replay is a call like any other: all ranks make the same calls in the
 * same order, and some may replay where others do not. It reads and writes where its operands were when it was
 * captured; the layer, the saved state and the group have to be there still. Calls don't wait for a replay on another
 * stream, nor a replay for calls: whoever replays orders them.
 *
 * Threads. Different groups are independent. Calls of one group handle are serial: a second thread that
 * calls while one is running waits. Handles are not locked against destruction.
 */
#ifndef MEGAMOE_H
#define MEGAMOE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MMOE_API __attribute__((visibility("default")))
#else
#define MMOE_API
#endif

/* ---- Version ------------------------------------------------------------------------------------ */

#define MMOE_VERSION_MAJOR 0
#define MMOE_VERSION_MINOR 1
#define MMOE_VERSION_PATCH 0

/* The version of the library in use, "major.minor.patch". Compare with the macros above. */
MMOE_API const char *mmoe_version(void);

/* ---- Status and error text ---------------------------------------------------------------------- */

typedef enum mmoe_status {
    MMOE_OK = 0,
    MMOE_INVALID_ARGUMENT = 1, /* an argument of this rank is wrong; nothing was written */
    MMOE_UNSUPPORTED = 2,      /* a legal shape or option that this backend does not compute */
    MMOE_OUT_OF_MEMORY = 3,    /* an allocation failed */
    MMOE_SYSTEM = 4,           /* a call of the operating system or a driver failed; the text holds its reason */
    MMOE_MISMATCH = 5,         /* the ranks disagree: on a size, a version, or the order of calls */
    MMOE_REFUSED = 6,          /* another rank refused this call; the text holds its reason */
    MMOE_CAPACITY = 7,         /* a rank was routed more rows than its fixed capacity; same on all ranks */
    MMOE_TIMEOUT = 8,          /* a peer did not come in time; the text names rank and step */
    MMOE_PEER_LOST = 9,        /* a peer died or gave up this call; the text names rank and step */
    MMOE_BROKEN = 10           /* the group broke in an earlier call; the text holds the first cause */
} mmoe_status;

/* The name of a status as in this header, "MMOE_OK" and so on; "unknown status" for any other number. */
MMOE_API const char *mmoe_status_name(mmoe_status status);

/* One sentence about the last failure in the calling thread, "" when there was none. Valid until the
 * thread's next failing call. */
MMOE_API const char *mmoe_last_error(void);

/* ---- Published maxima --------------------------------------------------------------------------- */

#define MMOE_MAX_WORLD 64
#define MMOE_MAX_EXPERTS 4096
#define MMOE_MAX_TOP_K 64
#define MMOE_MAX_TOKENS (1 << 20) /* tokens of one rank in one call */
#define MMOE_MAX_HIDDEN 65536
#define MMOE_MAX_INTERMEDIATE 65536
/* In addition W * max_tokens * K stays under 2^31: a row number is an int32. Offsets are 64 bits wide. */

/* ---- Tensors ------------------------------------------------------------------------------------ */

typedef enum mmoe_dtype {
    MMOE_BF16 = 1, /* bfloat16: the upper 16 bits of an IEEE float32, rounded to nearest even */
    MMOE_F32 = 2,  /* IEEE float32 */
    MMOE_I32 = 3,
    MMOE_I64 = 4
} mmoe_dtype;

/* A view of the caller's memory: element (i, j) of a matrix lies at data + i*stride[0] + j*stride[1];
 * element (e, i, j) of a stack of El matrices at data + e*stride[0] + i*stride[1] + j*stride[2], in
 * elements. Strides of an input may have any value (0 repeats, negative walks backwards); no two elements
 * of an output share an address. Outputs overlap neither inputs nor one another.
 * A stack may instead be given as one pointer an expert: `experts` then holds El pointers, `data` is NULL
 * and stride[0] is not used. A zeroed mmoe_tensor is an absent tensor. */
typedef struct mmoe_tensor {
    void *data;
    void *const *experts;
    mmoe_dtype dtype;
    int32_t dims;      /* 2 or 3; 0 in an absent tensor */
    int64_t shape[3];  /* elements */
    int64_t stride[3]; /* elements */
} mmoe_tensor;

/* Contiguous views: a matrix [rows, cols], a stack [count, rows, cols], and a stack of `count` contiguous
 * matrices at separate addresses. */
MMOE_API mmoe_tensor mmoe_matrix(void *data, mmoe_dtype dtype, int64_t rows, int64_t cols);
MMOE_API mmoe_tensor mmoe_stack(void *data, mmoe_dtype dtype, int64_t count, int64_t rows, int64_t cols);
MMOE_API mmoe_tensor mmoe_stack_of(void *const *experts, mmoe_dtype dtype, int64_t count, int64_t rows, int64_t cols);

/* Rows first .. first+count-1 of every matrix of a stack held in one allocation, for example the gate half
 * (0, I) and the up half (I, I) of one [El, 2I, H] tensor. An absent tensor when the rows are not inside. */
MMOE_API mmoe_tensor mmoe_stack_rows(mmoe_tensor stack, int64_t first, int64_t count);

/* ---- EP group ----------------------------------------------------------------------------------- */

/* The ranks that share the experts, with one symmetric memory segment a rank, made once and shared by all
 * layers. All ranks must agree on every field that says so. */
typedef struct mmoe_group mmoe_group;

typedef struct mmoe_group_config {
    size_t struct_size;            /* sizeof(mmoe_group_config), set by mmoe_group_config_default() */
    int64_t max_tokens;            /* agreed: most tokens a rank brings to a call, 0 .. MMOE_MAX_TOKENS */
    int64_t max_hidden;            /* agreed: largest H of a layer */
    int64_t max_top_k;             /* agreed: largest K of a layer */
    int64_t max_experts;           /* agreed: largest E of a layer */
    int64_t arrive_timeout_ms;     /* for peers to arrive at set-up or at a call: default 600000 (10 minutes) */
    int64_t progress_timeout_ms;   /* for everything else, once all have arrived: default 30000 */
    int32_t threads;               /* CPU threads of this rank; default 0: its share of the cores */
    int32_t spare_multiprocessors; /* of this rank's GPU, that large kernels leave to those of others, such as a
                                      collective's; at least one is used, two by a backward. Changes no bit.
                                      Default 0 */
    const char *backend;           /* agreed: "cuda" or "cpu"; default NULL: "cpu" */
    const char *name;              /* agreed: tells groups apart that one environment or path makes; default "" */
} mmoe_group_config;

/* A configuration with the defaults above and zero sizes, which the caller fills in. */
MMOE_API mmoe_group_config mmoe_group_config_default(void);

/* W ranks as threads of this process: fills groups[0 .. world-1], one handle for each rank, to be used
 * from a thread each. On failure every groups[r] is NULL. */
MMOE_API mmoe_status mmoe_group_create_threads(const mmoe_group_config *config, int world, mmoe_group **groups);

/* This process as one rank of a group of processes on this host, met through the environment variables
 * RANK, WORLD_SIZE and MASTER_ADDR, MASTER_PORT as torchrun sets them (LOCAL_RANK and LOCAL_WORLD_SIZE,
 * when set, must say the same: all ranks on one host), or MMOE_RENDEZVOUS, a path, instead of the latter two.
 * Collective; returns on every rank, or fails on every rank within arrive_timeout_ms plus 2 s. */
MMOE_API mmoe_status mmoe_group_create_env(const mmoe_group_config *config, mmoe_group **group);

/* The same with explicit rank, world and a path in an existing folder that all ranks can write, where a Unix
 * socket lies during set-up; it is gone when this returns. */
MMOE_API mmoe_status mmoe_group_create_path(const mmoe_group_config *config, const char *path, int rank, int world,
                                            mmoe_group **group);

/* This rank of a group whose memory the caller made: segments[r] is where rank r's segment, of
 * mmoe_group_segment_bytes() bytes, is mapped here; segments are 128-byte aligned, zero on every rank
 * before any rank calls this, and stay mapped until every rank has destroyed its group. Not collective. The first
 * call compares the ranks' configurations before it writes where they say; a difference breaks the group with
 * MMOE_MISMATCH on every rank. With a backend that works on a device, segments are memory of the ranks' devices, each
 * rank's on one of its own, and every device can write to all of them, atomically too. */
MMOE_API mmoe_status mmoe_group_create_adopted(const mmoe_group_config *config, int rank, int world,
                                               void *const *segments, mmoe_group **group);

/* Bytes of one rank's segment; 0, with the error text set, when the configuration is invalid or its backend can't run
 * here. */
MMOE_API size_t mmoe_group_segment_bytes(const mmoe_group_config *config, int world);

MMOE_API int mmoe_group_rank(const mmoe_group *group);
MMOE_API int mmoe_group_world(const mmoe_group *group);

/* MMOE_OK while the group works; the status of the first cause once it is broken, with its text. On GPUs a backward,
 * and a forward of a layer with a fixed capacity, return before they have ended: when such a call has failed without
 * breaking the group, this tells it once, unless a report of that call or the next call has told it already. Waits for
 * nothing. */
MMOE_API mmoe_status mmoe_group_check(const mmoe_group *group);

/* Leaves the group and sets *group to NULL. Not collective. NULL and pointers to NULL are accepted, so that a
 * second destroy does nothing. Layers and saved states must be destroyed first. */
MMOE_API void mmoe_group_destroy(mmoe_group **group);

/* ---- Device memory ------------------------------------------------------------------------------ */

/* The number of the GPU that this rank works on; each rank of a group has one of its own, unless MEGAMOE_SHARE_GPUS is
 * 1 in the environment of ranks that are processes: a GPU that several have runs them in turn, which is slow and meant
 * for trying things out. In an adopted group it is that of the rank's segment. Otherwise it is the one of the calling
 * thread's current CUDA context when the group was made. Without a context it is the suitable GPU with the number
 * LOCAL_RANK of the environment, or else the rank; several ranks that are threads go by their rank in any case. Numbers
 * past the last suitable GPU begin again at the first. -1: it works on the CPU, and addresses are of the host. */
MMOE_API int mmoe_group_device(const mmoe_group *group);

/* Memory of that device and copies to and from it, for programs without a CUDA runtime of their own; any other memory
 * of the device serves as well. A copy waits for the device's default stream and is done when it returns. Freeing sets
 * *memory to NULL; pointers to NULL are accepted. */
MMOE_API mmoe_status mmoe_device_alloc(mmoe_group *group, size_t bytes, void **memory);
MMOE_API void mmoe_device_free(mmoe_group *group, void **memory);
MMOE_API mmoe_status mmoe_device_write(mmoe_group *group, void *to, const void *from, size_t bytes);
MMOE_API mmoe_status mmoe_device_read(mmoe_group *group, void *to, const void *from, size_t bytes);

/* ---- Layer -------------------------------------------------------------------------------------- */

typedef struct mmoe_layer mmoe_layer;

typedef enum mmoe_weight_on {
    MMOE_WEIGHT_ON_OUTPUT = 0, /* w[t,k] multiplies the expert's output */
    MMOE_WEIGHT_ON_INPUT = 1   /* the expert sees bf16(w[t,k] * x[t]); its output is summed as it is */
} mmoe_weight_on;

typedef enum mmoe_activation {
    MMOE_SILU = 0 /* h = silu(g) * u */
} mmoe_activation;

typedef enum mmoe_capacity_policy {
    MMOE_CAPACITY_GROW = 0, /* buffers for received rows grow to the exact demand of a call */
    MMOE_CAPACITY_FIXED = 1 /* buffers hold `capacity` rows, made with the layer; calls allocate nothing, and on GPUs a
                               call without a report waits for nothing: a CUDA graph can hold it. What goes wrong on
                               the device fills outputs with NaN and is told by a later call, which is made all the
                               same, or by mmoe_group_check() */
} mmoe_capacity_policy;

/* How the results of a token's slots become y, always in fp32 and rounded to bf16 at the end. */
typedef enum mmoe_combine {
    MMOE_COMBINE_EXACT = 0,  /* each slot's result, rounded, travels; their sum in slot order: the same bits at any W */
    MMOE_COMBINE_GROUPED = 1 /* the rank of the experts sums a token's results in slot order and rounds the sum, which
                                travels; the sum over ranks in rank order. Less to send where a token has several slots
                                on a rank. Bits depend on which expert is on which rank, and on nothing else of the
                                batch. Gradients travel as with MMOE_COMBINE_EXACT */
} mmoe_combine;

typedef struct mmoe_layer_config {
    size_t struct_size;   /* sizeof(mmoe_layer_config), set by mmoe_layer_config_default() */
    int64_t hidden;       /* H */
    int64_t intermediate; /* I */
    int64_t experts;      /* E, a multiple of W */
    int64_t top_k;        /* K */
    mmoe_weight_on weight_on;
    mmoe_activation activation;
    float limit; /* L > 0: g' = min(g, L), u' = clamp(u, -L, L) before silu, gradient 0 where
                    clipped; 0: no limit */
    mmoe_capacity_policy capacity_policy;
    int64_t capacity;      /* fixed policy: the used rows a rank may receive in a call, pads excluded */
    int32_t drop;          /* fixed policy, 1: a rank keeps its first `capacity` rows in plan order; a dropped
                              slot behaves as id -1 and is counted. 0: more rows are an error on all ranks */
    int32_t check_weights; /* 1 (default): NaN and Inf among the router weights are refused */
    mmoe_combine combine;
} mmoe_layer_config;

/* A configuration with the defaults: weight on output, silu, no limit, growing capacity, checked weights, exact
 * combine. */
MMOE_API mmoe_layer_config mmoe_layer_config_default(void);

/* Why `backend` (NULL: the default one) can't compute this layer over `world` ranks, as one sentence; NULL
 * when it can. The text belongs to the calling thread and is valid until its next call of this function. */
MMOE_API const char *mmoe_unsupported_reason(const char *backend, const mmoe_layer_config *config, int world);

/* Makes a layer. Not collective, but all ranks of a group make the same layers in the same order: each call
 * compares. The layer holds no weights: they are arguments of every call. */
MMOE_API mmoe_status mmoe_layer_create(mmoe_group *group, const mmoe_layer_config *config, mmoe_layer **layer);

/* Sets *layer to NULL; NULL is accepted. */
MMOE_API void mmoe_layer_destroy(mmoe_layer **layer);

/* ---- Routing plan ------------------------------------------------------------------------------- */

/* Segments of experts start at multiples of this many rows; the rows between are pads, zero in every sum. */
#define MMOE_ROW_BLOCK 128

/* Which rows a rank computes, and where each of its own slots went. Pure arithmetic on the ids of all ranks,
 * equal on every backend. Rows of a local expert are ordered by (source rank, token, k). Read only. */
typedef struct mmoe_plan {
    int32_t rank, world;
    int32_t experts, local_experts, top_k;
    const int32_t *tokens;        /* [W] T of each rank */
    const int32_t *counts;        /* [W, E] used slots of each source rank for each expert, before dropping */
    const int64_t *demand;        /* [W] rows routed to each rank, before dropping */
    const int64_t *dropped;       /* [W] rows that each rank drops: max(0, demand - capacity) with drop on */
    const int32_t *expert_rows;   /* [El] rows kept for each local expert */
    const int32_t *expert_offset; /* [El + 1] first row of each segment, multiples of MMOE_ROW_BLOCK; last: the end */
    int64_t rows;                 /* rows kept on this rank, pads excluded */
    int64_t padded_rows;          /* expert_offset[El] */
    const int32_t *row_source;    /* [padded_rows] source rank; -1: a pad */
    const int32_t *row_token;     /* [padded_rows] token on its source rank; -1: a pad */
    const int32_t *row_slot;      /* [padded_rows] k; -1: a pad */
    const int32_t *row_primary;   /* [padded_rows] first row of the same (source, token), fetched once; -1: a pad */
    const float *row_weight;      /* [padded_rows] w of the slot; 0 for a pad. NULL in a plan made from ids alone */
    const int32_t *slot_row;      /* [T, K] of this rank: row on the expert's rank; -1: not used; -2: dropped */
    int64_t slots;                /* used slots of this rank that were not dropped: the rows that come back */
    int64_t slots_dropped;        /* used slots of this rank that were dropped */
} mmoe_plan;

/* The plan of rank `rank` from the ids of all ranks: ids[r] is [T_r, K], int32 or int64. `layer` gives E, K, the
 * capacity and drop. No group is needed. Fails with MMOE_INVALID_ARGUMENT on an id out of range and with
 * MMOE_CAPACITY as a call would. */
MMOE_API mmoe_status mmoe_plan_create(const mmoe_layer_config *layer, int rank, int world, const mmoe_tensor *ids,
                                      mmoe_plan **plan);
MMOE_API void mmoe_plan_destroy(mmoe_plan **plan);

/* ---- Saved state -------------------------------------------------------------------------------- */

typedef enum mmoe_keep {
    MMOE_KEEP_PLAN = 0, /* the plan alone: backward fetches x again and computes gate and up again */
    MMOE_KEEP_ROWS = 1  /* the plan, the x rows and gate and up: more memory, less work */
} mmoe_keep;

/* What a forward leaves for its backward. May be used again for another forward, which replaces it. */
typedef struct mmoe_saved mmoe_saved;

MMOE_API mmoe_status mmoe_saved_create(mmoe_layer *layer, mmoe_keep keep, mmoe_saved **saved);
MMOE_API void mmoe_saved_destroy(mmoe_saved **saved);

/* The plan of the last successful forward into `saved`; NULL when there is none. Owned by `saved`. On a device this
 * waits for the calls that have been made; of a forward that failed after it had returned the plan is empty. */
MMOE_API const mmoe_plan *mmoe_saved_plan(const mmoe_saved *saved);

/* ---- Forward and backward ----------------------------------------------------------------------- */

/* What one call did on this rank. */
typedef struct mmoe_report {
    uint32_t call;           /* number of the call in its group, from 1 */
    int64_t rows;            /* rows computed */
    int64_t padded_rows;     /* rows and pads */
    int64_t dropped;         /* own slots dropped */
    int64_t bytes_pulled;    /* from peers: rows of tokens, and of their gradients */
    int64_t bytes_pushed;    /* to peers: ids, weights, result rows, dw */
    double seconds_exchange; /* writing the slot, awaiting peers, headers */
    double seconds_plan;
    double seconds_dispatch; /* fetching rows */
    double seconds_gate_up;  /* GEMM1 and the activation; in backward only when redone */
    double seconds_down;     /* GEMM2, weighting, pushing; 0 in backward */
    double seconds_dgrad;    /* dA, activation gradient, dX, pushing; 0 in forward */
    double seconds_wgrad;    /* dW1, dW2, dW3; 0 in forward */
    double seconds_combine;  /* awaiting rows that come back, and their sum */
    double seconds_fused;    /* where one kernel does it at once, on a GPU: all of a forward from fetching rows to their
                                sum; all of a backward from fetching rows to pushing their gradients */
    double seconds_total;
} mmoe_report;

/* Inputs and outputs of a forward. Start from mmoe_forward_args_default(). */
typedef struct mmoe_forward_args {
    size_t struct_size;
    mmoe_tensor x;       /* [T, H] bf16 */
    mmoe_tensor ids;     /* [T, K] int32 or int64: expert, 0 .. E-1, or -1: slot not used. Duplicates are summed */
    mmoe_tensor weights; /* [T, K] fp32 router weights */
    mmoe_tensor gate;    /* W1 [El, I, H] bf16 */
    mmoe_tensor up;      /* W3 [El, I, H] bf16 */
    mmoe_tensor down;    /* W2 [El, H, I] bf16 */
    mmoe_tensor y;       /* out: [T, H] bf16 */
    mmoe_saved *saved;   /* out: for backward; NULL: nothing is kept */
    mmoe_report *report; /* out, optional */
    void *stream;        /* a CUstream or cudaStream_t of the group's device, NULL: its default one; NULL on the CPU */
} mmoe_forward_args;

/* Inputs and outputs of a backward. Any gradient that is absent is neither computed nor sent; each rank may
 * leave out its own. Start from mmoe_backward_args_default(). */
typedef struct mmoe_backward_args {
    size_t struct_size;
    mmoe_saved *saved;          /* of the forward; its weights and ids are inside. Not consumed */
    mmoe_tensor x;              /* [T, H] bf16, as in the forward; absent when `saved` keeps rows */
    mmoe_tensor dy;             /* [T, H] bf16 */
    mmoe_tensor gate, up, down; /* as in the forward */
    mmoe_tensor dx;             /* out: [T, H] bf16 */
    mmoe_tensor dweights;       /* out: dw [T, K] fp32; exactly 0 for a slot that was not used or was dropped */
    mmoe_tensor dgate;          /* out: dW1 [El, I, H] bf16 or fp32: the plain sum over the rows an expert received */
    mmoe_tensor dup;            /* out: dW3 [El, I, H] */
    mmoe_tensor ddown;          /* out: dW2 [El, H, I] */
    int32_t accumulate;         /* 1: dgate, dup and ddown are added to what is there (an expert without rows: bits
                                   unchanged); 0: overwritten (an expert without rows: zeros) */
    mmoe_report *report;        /* out, optional */
    void *stream;
} mmoe_backward_args;

MMOE_API mmoe_forward_args mmoe_forward_args_default(void);
MMOE_API mmoe_backward_args mmoe_backward_args_default(void);

/* One layer, collective over the group. Rounding points: products accumulate in fp32; gate and up are rounded to
 * bf16; silu(g)*u is computed in fp32 and rounded to bf16; a row's output is rounded once from w*acc; the K rows
 * of a token are summed in fp32 in slot order and rounded once. Backward likewise, dw in fp32. */
MMOE_API mmoe_status mmoe_forward(mmoe_layer *layer, const mmoe_forward_args *args);
MMOE_API mmoe_status mmoe_backward(mmoe_layer *layer, const mmoe_backward_args *args);

/* In the place of a call that this rank can't make, for want of memory for its result, say: the other ranks' calls
 * return MMOE_REFUSED with the reason, instead of waiting for it. `reason` is a sentence; `stream` as in the call.
 * Returns MMOE_INVALID_ARGUMENT, whose text is the reason, or how the group broke. The next call can be made. Not in a
 * stream that is captured for a graph: what is captured is no call yet. */
MMOE_API mmoe_status mmoe_refuse_forward(mmoe_layer *layer, void *stream, const char *reason);
MMOE_API mmoe_status mmoe_refuse_backward(mmoe_layer *layer, void *stream, const char *reason);

/* ---- Traces ------------------------------------------------------------------------------------- */

/* What a GPU's forward or backward did when: communication under computation, and what was waited for.
 *
 * A multiprocessor works on tiles of 128 rows and some columns of a product, called tasks. Its warps share the work:
 * the loader takes tasks and brings their operands to shared memory, the consumers multiply and stage the results, the
 * storer stores activations and pushes result rows to the ranks of their tokens, and the fetcher pulls token rows, of
 * which several are in flight at a time. Gradients of weights are made after that, by a loader and consumers, while
 * warps that have nothing to do are summers: they sum tokens whose results have all come. At the end of a backward all
 * warps are finishers, which sum the rest. In a forward with a grouped combine over several ranks the grouper sums what
 * its rank computed of a token, and pushes the sum. */
typedef enum mmoe_trace_role {
    MMOE_TRACE_LOADER = 0,
    MMOE_TRACE_FETCHER = 1,
    MMOE_TRACE_FLIGHT = 2,
    MMOE_TRACE_STORER = 3,
    MMOE_TRACE_CONSUMER = 4,
    MMOE_TRACE_SUMMER = 5,
    MMOE_TRACE_FINISHER = 6,
    MMOE_TRACE_GROUPER = 7
} mmoe_trace_role;

/* What an event's time was spent on, by role. (task): `block` and `tile` tell the task. (gradient): `block` is one of
 * this rank's experts, and `tile` counts through the tiles of its dW2, dW1 and dW3. */
typedef enum mmoe_trace_kind {
    /* Loader */
    MMOE_TRACE_AWAIT_ROWS = 1,      /* (task) its token rows were not all there */
    MMOE_TRACE_AWAIT_H = 2,         /* (task) its activations were not all there */
    MMOE_TRACE_AWAIT_GATE_UP = 3,   /* (task) gate and up, which a backward computes again, were not all there */
    MMOE_TRACE_AWAIT_GRADIENTS = 4, /* (task) gradients of gate and up were not all there */
    MMOE_TRACE_AWAIT_QUEUE = 5,     /* (task) the other warps had tasks enough */
    MMOE_TRACE_LOAD_GATE_UP = 6,    /* (task) `waited_ns` for stages to be free, as in all that load */
    MMOE_TRACE_LOAD_DOWN = 7,
    MMOE_TRACE_LOAD_DGATE_UP = 8, /* (task) for the gradients of gate and up */
    MMOE_TRACE_LOAD_DX = 9,
    MMOE_TRACE_LOAD_WGRAD = 10, /* (gradient) */
    /* Fetcher */
    MMOE_TRACE_AWAIT_TOKENS = 11, /* the tokens of the one rank in `ranks` were not where they are pulled from */
    MMOE_TRACE_CLEAR_PADS = 12,   /* `rows` pads of a `block` */
    MMOE_TRACE_AWAIT_PIECE = 13,  /* nothing that was asked for had come */
    MMOE_TRACE_SPREAD = 14,       /* `bytes` of a token that had come went to its `rows`; others were asked for */
    /* Flights */
    MMOE_TRACE_PULL = 15, /* `bytes` of a `token` of the one rank in `ranks`: piece `tile` of the token */
    /* Storer */
    MMOE_TRACE_AWAIT_TASK = 16,     /* (consumers too) there was none */
    MMOE_TRACE_AWAIT_TILE = 17,     /* (task) nothing of it was staged */
    MMOE_TRACE_STORE = 18,          /* (task) activations, gate and up; `waited_ns` for the rest to be staged */
    MMOE_TRACE_STORE_DGATE_UP = 19, /* (task) gradients of gate and up; the same */
    MMOE_TRACE_PUSH = 20,           /* (task) `rows` of `bytes` each, to the `ranks`; of them `peer_rows` to peers;
                                       `waited_ns` for the rest to be staged. Grouper: sums, as rows, of tokens whose
                                       last results are in `block` */
    MMOE_TRACE_PUSH_DW = 21,        /* (task) likewise, one dw each of the rows of a block that the task completed */
    /* Consumers: the first warp of each half of the tile tells of tasks, each warp of sums */
    MMOE_TRACE_MULTIPLY_GATE_UP = 22, /* (task) `waited_ns` for stages to be filled, as in all that multiply */
    MMOE_TRACE_MULTIPLY_DOWN = 23,
    MMOE_TRACE_MULTIPLY_DGATE_UP = 24,
    MMOE_TRACE_MULTIPLY_DX = 25,
    MMOE_TRACE_MULTIPLY_WGRAD = 26, /* (gradient) */
    MMOE_TRACE_STAGE_GATE_UP = 27,  /* (task) the activation; `waited_ns` for room to stage, as in all that stage */
    MMOE_TRACE_STAGE_DOWN = 28,     /* (task) weighting and rounding */
    MMOE_TRACE_STAGE_DX = 29,       /* (task) rounding */
    MMOE_TRACE_STAGE_WGRAD = 30,    /* (gradient) rounding, adding; `waited_ns` for old values too */
    MMOE_TRACE_DIFFERENTIATE = 31,  /* (task) gradients of gate and up; `waited_ns` for gate and up to come */
    /* Consumers, summers, finishers, groupers */
    MMOE_TRACE_AWAIT_RESULTS = 32, /* of this rank's tokens, from all ranks; grouper: from this rank */
    MMOE_TRACE_COPY_DW = 33,       /* of this rank's tokens, which had come */
    MMOE_TRACE_SUM = 34            /* of `rows` tokens from `token` on */
} mmoe_trace_kind;

/* Fields that a kind does not name are 0. */
typedef struct mmoe_trace_event {
    int64_t begin_ns, end_ns; /* by the GPU's global timer, which all its multiprocessors share */
    int64_t waited_ns;        /* of that, as the kind says */
    int32_t multiprocessor;   /* its number on the GPU */
    mmoe_trace_role role;
    int32_t number; /* of the consumer, 0 .. 7, of the flight's place, 0 .. 3, of the summer, 0 .. 2, of the finisher,
                       0 .. 11; else 0 */
    mmoe_trace_kind kind;
    int32_t block, tile;
    int32_t token, rows, peer_rows;
    int32_t bytes;
    uint64_t ranks; /* bit r: rank r */
} mmoe_trace_event;

typedef struct mmoe_trace {
    int32_t rank, world;
    int32_t multiprocessors;        /* that had a part in the call */
    int64_t begin_ns, end_ns;       /* the first one's begin and the last one's end */
    const mmoe_trace_event *events; /* sorted by multiprocessor, role, number and time; those of one don't overlap */
    int64_t count;
    int64_t lost; /* events that were not kept */
} mmoe_trace;

/* mmoe_forward and mmoe_backward, with the same results and collective with them: each rank may trace or not. Both wait
 * for the end of the call and make a trace, which mmoe_trace_destroy frees; times in all traces of a GPU are of one
 * clock. At most `records` events of each warp of a kernel are kept, 0: 4096; room for them is allocated for this call
 * alone, 624 bytes a multiprocessor, kernel and record. A forward is one kernel. A backward is one for the rows, one
 * for dW2, one for dW1 and dW3 or, when their types differ, for each, and one for the end. A kernel of more than two
 * seconds loses all. On failure *trace is NULL. MMOE_UNSUPPORTED on the CPU, and in a stream that is being captured. */
MMOE_API mmoe_status mmoe_forward_traced(mmoe_layer *layer, const mmoe_forward_args *args, int64_t records,
                                         mmoe_trace **trace);
MMOE_API mmoe_status mmoe_backward_traced(mmoe_layer *layer, const mmoe_backward_args *args, int64_t records,
                                          mmoe_trace **trace);

/* Sets *trace to NULL; NULL is accepted. */
MMOE_API void mmoe_trace_destroy(mmoe_trace **trace);

/* "multiply gate_up" and so on; "unknown kind" for any other number. */
MMOE_API const char *mmoe_trace_kind_name(mmoe_trace_kind kind);

/* ---- Sizes of every buffer ---------------------------------------------------------------------- */

/* All in bytes, for one rank. */
typedef struct mmoe_sizes {
    /* the symmetric segment, made with the group */
    size_t x_slot, dy_slot, routing, combine_slots, dw_slots, flags, segment;
    /* scratch shared by the layers of a group, for `rows` received rows */
    size_t rows_x, rows_dy, rows_gate_up, rows_h, rows_dgrad, rows_dw, thread_buffers, scratch;
    /* one saved state */
    size_t plan, kept_x, kept_gate_up, saved;
} mmoe_sizes;

/* Sizes for a layer of a group of `world` ranks when this rank brings `tokens` tokens and receives `rows` rows
 * (rows < 0: the worst case, every slot of every rank at max_tokens). `keep` decides the saved state. */
MMOE_API mmoe_status mmoe_sizes_of(const mmoe_group_config *group, const mmoe_layer_config *layer, int world,
                                   int64_t tokens, int64_t rows, mmoe_keep keep, mmoe_sizes *sizes);

/* ---- Backends ----------------------------------------------------------------------------------- */

/* Number of backends in this build, and the name of each (NULL past the end). *present becomes 1 when this
 * machine can run it; *detail (may be NULL) points to a sentence about the device found or what is missing,
 * valid until the thread's next call of this function. */
MMOE_API int mmoe_backend_count(void);
MMOE_API const char *mmoe_backend(int index, int *present, const char **detail);

/* A sentence about device `device` that backend `index` finds on this machine, suitable or not: what it is, its links
 * and its peers. NULL past the last one. Valid until the thread's next call of this function. */
MMOE_API const char *mmoe_backend_device(int index, int device);

#ifdef __cplusplus
}
#endif

#endif
