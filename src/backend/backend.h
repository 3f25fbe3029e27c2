/* The one table behind which every backend sits, and the objects it works on.
 *
 * The API layer (src/api) checks what can be told from the arguments' descriptions: shapes, dtypes, strides, aliases,
 * options. A backend checks what needs the data (ids, router weights), runs the protocol and computes. A new backend
 * is a folder with one `const struct mm_backend`, named in backends.c. */
#ifndef MM_BACKEND_BACKEND_H
#define MM_BACKEND_BACKEND_H

#include "group/call.h"
#include "plan/plan.h"

struct mmoe_layer {
    struct mmoe_group *group;
    mmoe_layer_config config;
    int32_t index;       /* number of the layer in its group */
    int local_experts;   /* El */
    void *check_scratch; /* of the API's argument checks, used under the group's lock */
    void *backend_state;
};

struct mmoe_saved {
    struct mmoe_layer *layer;
    mmoe_keep keep;
    uint32_t call;  /* number of the forward inside; 0: none */
    int64_t tokens; /* of this rank in that forward */
    struct mm_plan plan;
    void *backend_state; /* the kept rows */
};

/* Memory for callers of a backend whose calls take addresses of a device. */
struct mm_device_memory {
    int (*device)(const struct mmoe_group *group); /* its number */
    mmoe_status (*make)(struct mmoe_group *group, size_t bytes, void **memory);
    void (*free)(struct mmoe_group *group, void *memory);
    mmoe_status (*write)(struct mmoe_group *group, void *to, const void *from, size_t bytes);
    mmoe_status (*read)(struct mmoe_group *group, void *to, const void *from, size_t bytes);
};

/* Memory of devices that the ranks of a group share: a block on each rank's device, mapped on the others'. The group's
 * segments, in memory of the host, then have the control part alone. In an adopted group the blocks are the
 * caller's (group->given in group_open), and neither function is called. */
struct mm_sharing {
    /* Once, after group_open, which has made this rank's block and filled it with zeros: offers it. The caller closes
     * the descriptor, also after a failure. */
    mmoe_status (*offer)(struct mmoe_group *group, struct mm_offer *offer);

    /* When all ranks have made theirs: maps the blocks offered[0 .. world-1]. group_close unmaps. */
    mmoe_status (*join)(struct mmoe_group *group, const struct mm_offer *offered);
};

struct mm_backend {
    const char *name;

    /* Whether this machine can run it, and a sentence that says what was found or is missing (written to `detail`). */
    bool (*present)(char *detail, size_t bytes);

    /* A sentence about device `index` of the machine; false past the last one. NULL: the backend has no devices. */
    bool (*describe_device)(int index, char *text, size_t bytes);

    /* NULL: calls take addresses of the host. */
    const struct mm_device_memory *device_memory;

    /* True when it computes the layer; otherwise `reason` is a sentence. The configuration is legal already. */
    bool (*supports)(const mmoe_layer_config *config, char *reason, size_t bytes);

    const struct mm_segment_maker *segments;

    /* NULL: all that the ranks share lies in their segments. */
    const struct mm_sharing *sharing;

    /* Of a rank's segment, or of the block that takes its place where devices share memory. */
    struct mm_layout (*layout)(const mmoe_group_config *config, int world);

    /* Scratch and thread buffers part of `sizes`, and kept_x, kept_gate_up. */
    void (*sizes)(const mmoe_group_config *group, const mmoe_layer_config *layer, int world, int64_t padded_rows,
                  mmoe_keep keep, mmoe_sizes *sizes);

    /* Open functions fill backend_state and undo themselves on failure; close functions accept NULL state. A group is
     * opened before the segments of its peers are mapped. */
    mmoe_status (*group_open)(struct mmoe_group *group);
    void (*group_close)(struct mmoe_group *group);
    mmoe_status (*layer_open)(struct mmoe_layer *layer);
    void (*layer_close)(struct mmoe_layer *layer);
    mmoe_status (*saved_open)(struct mmoe_saved *saved);
    void (*saved_close)(struct mmoe_saved *saved);

    /* The plan of the forward inside; NULL, with the thread's error text set, when it can't be read. */
    const mmoe_plan *(*plan)(struct mmoe_saved *saved);

    /* The arguments have been checked. On a failure after ready(n) they fill the outputs with NaN as megamoe.h says. */
    mmoe_status (*forward)(struct mmoe_layer *layer, const mmoe_forward_args *args);
    mmoe_status (*backward)(struct mmoe_layer *layer, const mmoe_backward_args *args);

    /* Calls that are recorded; NULL: the backend can't. A trace is one block of memory. */
    mmoe_status (*forward_traced)(struct mmoe_layer *layer, const mmoe_forward_args *args, int64_t records,
                                  mmoe_trace **trace);
    mmoe_status (*backward_traced)(struct mmoe_layer *layer, const mmoe_backward_args *args, int64_t records,
                                   mmoe_trace **trace);

    /* How calls failed that returned before they had ended, since this was last asked. NULL: no call does. The group is
     * locked. */
    mmoe_status (*earlier)(struct mmoe_group *group);

    /* A call on this stream whose arguments the API refuses, with the thread's error text. */
    mmoe_status (*refuse)(struct mmoe_layer *layer, enum mm_call_kind kind, void *stream, mmoe_status status);
};

/* The backends of this build, ended by NULL. */
extern const struct mm_backend *const mm_backends[];

/* The group's part of an agreement and the layer's. */
void mm_layer_agreement(const struct mmoe_layer *layer, enum mm_call_kind kind, struct mm_agreement *agreed);

/* By name; NULL: the CPU backend. */
mmoe_status mm_backend_find(const char *name, const struct mm_backend **backend);

#endif
