/* The structs that a caller starts from. */
#include "megamoe.h"

mmoe_group_config mmoe_group_config_default(void) {
    return (mmoe_group_config){
        .struct_size = sizeof(mmoe_group_config),
        .arrive_timeout_ms = 600000,
        .progress_timeout_ms = 30000,
        .name = "",
    };
}

mmoe_layer_config mmoe_layer_config_default(void) {
    return (mmoe_layer_config){
        .struct_size = sizeof(mmoe_layer_config),
        .weight_on = MMOE_WEIGHT_ON_OUTPUT,
        .activation = MMOE_SILU,
        .capacity_policy = MMOE_CAPACITY_GROW,
        .check_weights = 1,
        .combine = MMOE_COMBINE_EXACT,
    };
}

mmoe_forward_args mmoe_forward_args_default(void) {
    return (mmoe_forward_args){.struct_size = sizeof(mmoe_forward_args)};
}

mmoe_backward_args mmoe_backward_args_default(void) {
    return (mmoe_backward_args){.struct_size = sizeof(mmoe_backward_args)};
}
