/* Traced calls. */
#include "api/check.h"

enum { USUAL_RECORDS = 4096, MOST_RECORDS = 1 << 20 };

/* What is asked for beside the call; `can`: the backend can trace such a call. */
static mmoe_status check_trace(const struct mmoe_layer *layer, bool can, int64_t records, mmoe_trace **trace) {
    mmoe_status status = mm_check_pointer("trace", trace, "the address of a pointer");
    if (status == MMOE_OK) {
        status = mm_check_range("records", records, 0, MOST_RECORDS);
    }
    return status != MMOE_OK || can
               ? status
               : mm_fail(MMOE_UNSUPPORTED, "a trace is wanted of backend \"%s\", expected \"cuda\"",
                         layer->group->backend->name);
}

static int64_t records_of(int64_t records) {
    return records > 0 ? records : USUAL_RECORDS;
}

static void forget(mmoe_trace **trace) {
    if (trace != NULL) {
        *trace = NULL;
    }
}

mmoe_status mmoe_forward_traced(mmoe_layer *layer, const mmoe_forward_args *args, int64_t records, mmoe_trace **trace) {
    forget(trace);
    if (layer == NULL) {
        return mm_check_pointer("layer", layer, "a layer");
    }
    const struct mm_backend *backend = layer->group->backend;
    mmoe_status status = check_trace(layer, backend->forward_traced != NULL, records, trace);
    if (status == MMOE_OK) {
        status = mm_check_forward(layer, args);
    }
    return status == MMOE_OK ? backend->forward_traced(layer, args, records_of(records), trace)
                             : backend->refuse(layer, MM_CALL_FORWARD, mm_stream_of_forward(args), status);
}

mmoe_status mmoe_backward_traced(mmoe_layer *layer, const mmoe_backward_args *args, int64_t records,
                                 mmoe_trace **trace) {
    forget(trace);
    if (layer == NULL) {
        return mm_check_pointer("layer", layer, "a layer");
    }
    const struct mm_backend *backend = layer->group->backend;
    mmoe_status status = check_trace(layer, backend->backward_traced != NULL, records, trace);
    if (status == MMOE_OK) {
        status = mm_check_backward(layer, args);
    }
    return status == MMOE_OK ? backend->backward_traced(layer, args, records_of(records), trace)
                             : backend->refuse(layer, MM_CALL_BACKWARD, mm_stream_of_backward(args), status);
}

void mmoe_trace_destroy(mmoe_trace **trace) {
    if (trace != NULL) {
        mm_free(trace);
    }
}

const char *mmoe_trace_kind_name(mmoe_trace_kind kind) {
    static const char *const names[] = {
        [MMOE_TRACE_AWAIT_ROWS] = "await rows",
        [MMOE_TRACE_AWAIT_H] = "await activations",
        [MMOE_TRACE_AWAIT_GATE_UP] = "await gate_up",
        [MMOE_TRACE_AWAIT_GRADIENTS] = "await gradients",
        [MMOE_TRACE_AWAIT_QUEUE] = "await queue",
        [MMOE_TRACE_LOAD_GATE_UP] = "load gate_up",
        [MMOE_TRACE_LOAD_DOWN] = "load down",
        [MMOE_TRACE_LOAD_DGATE_UP] = "load dgate_up",
        [MMOE_TRACE_LOAD_DX] = "load dx",
        [MMOE_TRACE_LOAD_WGRAD] = "load wgrad",
        [MMOE_TRACE_AWAIT_TOKENS] = "await tokens",
        [MMOE_TRACE_CLEAR_PADS] = "clear pads",
        [MMOE_TRACE_AWAIT_PIECE] = "await piece",
        [MMOE_TRACE_SPREAD] = "spread",
        [MMOE_TRACE_PULL] = "pull",
        [MMOE_TRACE_AWAIT_TASK] = "await task",
        [MMOE_TRACE_AWAIT_TILE] = "await tile",
        [MMOE_TRACE_STORE] = "store",
        [MMOE_TRACE_STORE_DGATE_UP] = "store dgate_up",
        [MMOE_TRACE_PUSH] = "push",
        [MMOE_TRACE_PUSH_DW] = "push dw",
        [MMOE_TRACE_MULTIPLY_GATE_UP] = "multiply gate_up",
        [MMOE_TRACE_MULTIPLY_DOWN] = "multiply down",
        [MMOE_TRACE_MULTIPLY_DGATE_UP] = "multiply dgate_up",
        [MMOE_TRACE_MULTIPLY_DX] = "multiply dx",
        [MMOE_TRACE_MULTIPLY_WGRAD] = "multiply wgrad",
        [MMOE_TRACE_STAGE_GATE_UP] = "stage gate_up",
        [MMOE_TRACE_STAGE_DOWN] = "stage down",
        [MMOE_TRACE_STAGE_DX] = "stage dx",
        [MMOE_TRACE_STAGE_WGRAD] = "stage wgrad",
        [MMOE_TRACE_DIFFERENTIATE] = "differentiate",
        [MMOE_TRACE_AWAIT_RESULTS] = "await results",
        [MMOE_TRACE_COPY_DW] = "copy dw",
        [MMOE_TRACE_SUM] = "sum",
    };
    const size_t index = (size_t)kind;
    const char *name = index < sizeof names / sizeof names[0] ? names[index] : NULL;
    return name != NULL ? name : "unknown kind";
}
