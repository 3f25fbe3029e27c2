/* Calls that may be captured; see fixture.h. */
#include "fixture.h"

bool fixture_make(struct rig_rank *rank, const struct rig_batch *batch, const struct rig_options *options,
                  struct fixture *fixture) {
    *fixture = (struct fixture){.layer = NULL};
    RIG_TRY(rank, mmoe_layer_create(rank->group, &batch->layer, &fixture->layer) == MMOE_OK, "%s", mmoe_last_error());
    RIG_TRY(rank, mmoe_saved_create(fixture->layer, options->keep, &fixture->saved) == MMOE_OK, "%s",
            mmoe_last_error());
    fixture->call = rig_call_make(rank, batch, options, fixture->saved, 0x7f);
    if (!stream_make(rank, &fixture->stream) || !rig_call_place(rank, &fixture->call, &fixture->placed))
        return false;
    fixture->call.forward.stream = fixture->call.backward.stream = fixture->stream;
    return true;
}

void fixture_free(struct rig_rank *rank, struct fixture *fixture) {
    void *graphs[] = {fixture->forward, fixture->backward, fixture->both};
    for (int i = 0; i < COUNT(graphs); i++)
        if (graphs[i] != NULL)
            graph_free(rank, graphs[i]);
    stream_free(rank, fixture->stream);
    rig_placed_free(rank, &fixture->placed);
    rig_call_free(&fixture->call);
    mmoe_saved_destroy(&fixture->saved);
    mmoe_layer_destroy(&fixture->layer);
}

static bool forward(struct rig_rank *rank, const struct fixture *fixture) {
    const mmoe_status status = mmoe_forward(fixture->layer, &fixture->call.forward);
    RIG_TRY(rank, status == MMOE_OK, "forward: %s: %s", mmoe_status_name(status), mmoe_last_error());
    return true;
}

static bool backward(struct rig_rank *rank, const struct fixture *fixture) {
    const mmoe_status status = mmoe_backward(fixture->layer, &fixture->call.backward);
    RIG_TRY(rank, status == MMOE_OK, "backward: %s: %s", mmoe_status_name(status), mmoe_last_error());
    return true;
}

bool fixture_capture(struct rig_rank *rank, struct fixture *fixture) {
    return capture_begin(rank, fixture->stream) && forward(rank, fixture) &&
           capture_end(rank, fixture->stream, &fixture->forward) && capture_begin(rank, fixture->stream) &&
           backward(rank, fixture) && capture_end(rank, fixture->stream, &fixture->backward);
}

bool fixture_capture_both(struct rig_rank *rank, struct fixture *fixture) {
    return capture_begin(rank, fixture->stream) && forward(rank, fixture) && backward(rank, fixture) &&
           capture_end(rank, fixture->stream, &fixture->both);
}

bool fixture_put(struct rig_rank *rank, const struct fixture *fixture, const struct rig_call *step) {
    for (int i = 0; i < RIG_OPERANDS; i++) {
        const struct rig_tensor *tensor = &step->tensor[i];
        if (tensor->memory != NULL && (i < RIG_GATE || i > RIG_DOWN))
            RIG_TRY(rank,
                    mmoe_device_write(rank->group, fixture->placed.memory[i], tensor->memory, tensor->bytes) == MMOE_OK,
                    "%s", mmoe_last_error());
    }
    return true;
}

bool fixture_run(struct rig_rank *rank, const struct fixture *fixture, unsigned replayed) {
    if (replayed & REPLAY_BOTH)
        return graph_launch(rank, fixture->both, fixture->stream) && stream_await(rank, fixture->stream);
    return (replayed & REPLAY_FORWARD ? graph_launch(rank, fixture->forward, fixture->stream)
                                      : forward(rank, fixture)) &&
           (replayed & REPLAY_BACKWARD ? graph_launch(rank, fixture->backward, fixture->stream)
                                       : backward(rank, fixture)) &&
           stream_await(rank, fixture->stream);
}

bool fixture_step(struct rig_rank *rank, const struct fixture *fixture, struct rig_batch *batch, unsigned replayed,
                  int poison) {
    struct rig_call step = rig_call_make(rank, batch, fixture->call.options, NULL, poison);
    const bool good = fixture_put(rank, fixture, &step) && fixture_run(rank, fixture, replayed) &&
                      rig_call_fetch(rank, &step, &fixture->placed) && rig_call_take_forward(rank, &step, batch) &&
                      rig_call_take_backward(rank, &step, batch) &&
                      rig_plan_is_right(rank, mmoe_saved_plan(fixture->saved), batch);
    rig_call_free(&step);
    return good;
}
