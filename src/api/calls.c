/* Forward and backward: checked here, done by the group's backend. A rank that refuses its arguments still takes part
 * in the call, so that its peers learn of it. */
#include "api/check.h"

void *mm_stream_of_forward(const mmoe_forward_args *args) {
    return args != NULL && args->struct_size == sizeof *args ? args->stream : NULL;
}

void *mm_stream_of_backward(const mmoe_backward_args *args) {
    return args != NULL && args->struct_size == sizeof *args ? args->stream : NULL;
}

mmoe_status mmoe_forward(mmoe_layer *layer, const mmoe_forward_args *args) {
    if (layer == NULL) {
        return mm_check_pointer("layer", layer, "a layer");
    }
    const struct mm_backend *backend = layer->group->backend;
    mmoe_status status = mm_check_forward(layer, args);
    return status == MMOE_OK ? backend->forward(layer, args)
                             : backend->refuse(layer, MM_CALL_FORWARD, mm_stream_of_forward(args), status);
}

mmoe_status mmoe_backward(mmoe_layer *layer, const mmoe_backward_args *args) {
    if (layer == NULL) {
        return mm_check_pointer("layer", layer, "a layer");
    }
    const struct mm_backend *backend = layer->group->backend;
    mmoe_status status = mm_check_backward(layer, args);
    return status == MMOE_OK ? backend->backward(layer, args)
                             : backend->refuse(layer, MM_CALL_BACKWARD, mm_stream_of_backward(args), status);
}

static mmoe_status refuse(mmoe_layer *layer, enum mm_call_kind kind, void *stream, const char *reason) {
    if (layer == NULL) {
        return mm_check_pointer("layer", layer, "a layer");
    }
    const mmoe_status status = reason != NULL ? mm_fail(MMOE_INVALID_ARGUMENT, "%s", reason)
                                              : mm_check_pointer("reason", reason, "a sentence");
    return layer->group->backend->refuse(layer, kind, stream, status);
}

mmoe_status mmoe_refuse_forward(mmoe_layer *layer, void *stream, const char *reason) {
    return refuse(layer, MM_CALL_FORWARD, stream, reason);
}

mmoe_status mmoe_refuse_backward(mmoe_layer *layer, void *stream, const char *reason) {
    return refuse(layer, MM_CALL_BACKWARD, stream, reason);
}
