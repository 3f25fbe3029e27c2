/* Calls in which a rank is lost; see loss.h. */
#include "loss.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

bool took_longer(double seconds, double than) {
    return seconds > than && !rig_simulated();
}

const struct rig_options loss_overwritten = {.keep = MMOE_KEEP_ROWS}, loss_added = {.accumulate = true};

int victim_of(int world) {
    return world - 1;
}

struct loss *loss_make(int world, enum lost_in kind, mmoe_capacity_policy policy, int64_t most) {
    struct loss *loss = rig_shared(sizeof *loss);
    int64_t tokens[MMOE_MAX_WORLD];
    mmoe_layer_config layer = rig_layer(most > LOSS_TOKENS ? 512 : 64, 64, 2 * world, LOSS_TOP_K);
    layer.capacity_policy = policy;
    layer.capacity = policy == MMOE_CAPACITY_FIXED ? world * most * LOSS_TOP_K : 0;
    for (int r = 0; r < world; r++)
        tokens[r] = most;
    loss->batch = rig_batch_make(&layer, world, tokens, RIG_UNIFORM, 811);
    loss->kind = kind;
    loss->policy = policy;
    loss->options = policy == MMOE_CAPACITY_GROW ? &loss_overwritten : &loss_added;
    rig_barrier_make(&loss->met, world);
    rig_barrier_make(&loss->named, world);
    return loss;
}

void loss_free(struct loss *loss) {
    pthread_barrier_destroy(&loss->met);
    pthread_barrier_destroy(&loss->named);
    rig_batch_free(&loss->batch);
    rig_shared_free(loss);
}

void loss_run(struct loss *loss, rig_body body, enum rig_kind kind) {
    struct rig_world world = rig_world_for(&loss->batch, 1, kind);
    world.config.arrive_timeout_ms = world.config.progress_timeout_ms = LOSS_LIMIT_MS;
    world.seconds = 100;
    if (kind == RIG_PROCESSES)
        world.victim = victim_of(world.world);
    rig_world_run(&world, body, loss);
}

bool member_join(struct rig_rank *rank, const struct loss *loss, struct member *member) {
    RIG_TRY(rank, mmoe_layer_create(rank->group, &loss->batch.layer, &member->layer) == MMOE_OK, "%s",
            mmoe_last_error());
    RIG_TRY(rank, mmoe_saved_create(member->layer, loss->options->keep, &member->saved) == MMOE_OK, "%s",
            mmoe_last_error());
    return true;
}

void member_leave(struct member *member) {
    mmoe_saved_destroy(&member->saved);
    mmoe_layer_destroy(&member->layer);
}

bool attempt_place(struct rig_rank *rank, const struct member *member, const struct loss *loss,
                   struct attempt *attempt) {
    attempt->call = rig_call_make(rank, &loss->batch, loss->options, member->saved, 0x7f);
    attempt->call.forward.report = attempt->call.backward.report = loss->report ? &attempt->report : NULL;
    return rig_call_place(rank, &attempt->call, &attempt->placed);
}

void attempt_begin(const struct member *member, const struct loss *loss, struct attempt *attempt) {
    const double begun = mm_now();
    attempt->status = loss->kind == FORWARD ? mmoe_forward(member->layer, &attempt->call.forward)
                                            : mmoe_backward(member->layer, &attempt->call.backward);
    attempt->seconds = mm_now() - begun;
}

bool attempt_make(struct rig_rank *rank, const struct member *member, const struct loss *loss,
                  struct attempt *attempt) {
    if (!attempt_place(rank, member, loss, attempt))
        return false;
    attempt_begin(member, loss, attempt);
    return true;
}

bool attempt_fetch(struct rig_rank *rank, struct attempt *attempt) {
    const bool fetched = rig_call_fetch(rank, &attempt->call, &attempt->placed);
    rig_placed_free(rank, &attempt->placed);
    return fetched;
}

bool names_victim(struct rig_rank *rank, mmoe_status status, const char *step) {
    const char *text = mmoe_last_error();
    char name[32];
    snprintf(name, sizeof name, "rank %d", victim_of(rank->world));
    RIG_TRY(rank, status == MMOE_TIMEOUT || status == MMOE_PEER_LOST, "%s: %s", mmoe_status_name(status), text);
    RIG_TRY(rank, strstr(text, name) && strstr(text, step), "\"%s\" does not name %s and \"%s\"", text, name, step);
    return true;
}

bool is_spoilt(const struct loss *loss, const struct rig_call *call) {
    const bool added_in_part = strstr(mmoe_last_error(), "dgate, dup and ddown are spoilt") != NULL;
    if (loss->kind == FORWARD)
        return rig_operand_is_nan(call, RIG_Y);
    return added_in_part ? rig_operand_is_nan(call, RIG_DX) && rig_operand_is_nan(call, RIG_DWEIGHTS)
                         : gpus_gradients_are_spoilt(call);
}

bool is_first_failure(struct rig_rank *rank, const struct loss *loss, struct attempt *attempt, bool waits,
                      const char *step) {
    const double begun = mm_now();
    RIG_TRY(rank, waits || attempt->status == MMOE_OK, "%s", mmoe_last_error());
    if (waits && !names_victim(rank, attempt->status, step))
        return false;
    if (!attempt_fetch(rank, attempt))
        return false;
    const double seconds = attempt->seconds + mm_now() - begun;
    RIG_TRY(rank, !took_longer(seconds, LOSS_IN_TIME), "told after %.1f s", seconds);
    if (!names_victim(rank, mmoe_group_check(rank->group), step))
        return false;
    RIG_TRY(rank, is_spoilt(loss, &attempt->call), "results of a failed call look good");
    rig_call_free(&attempt->call);
    return true;
}

bool is_broken(struct rig_rank *rank, const struct member *member, const struct loss *loss) {
    struct attempt attempt;
    char text[600];
    snprintf(text, sizeof text, "%s", mmoe_last_error());
    if (!attempt_make(rank, member, loss, &attempt))
        return false;
    RIG_TRY(rank, attempt.status == MMOE_BROKEN && strcmp(mmoe_last_error(), text) == 0, "%s: \"%s\", expected \"%s\"",
            mmoe_status_name(attempt.status), mmoe_last_error(), text);
    RIG_TRY(rank, !took_longer(attempt.seconds, LOSS_AT_ONCE), "a call of a broken group took %.1f s", attempt.seconds);
    RIG_TRY(rank, attempt_fetch(rank, &attempt) && rig_call_untouched(&attempt.call), "a broken group's call wrote");
    rig_call_free(&attempt.call);
    return true;
}

bool ends(struct rig_rank *rank, struct member *member, double seconds) {
    const double begun = mm_now();
    member_leave(member);
    mmoe_group_destroy(&rank->group);
    RIG_TRY(rank, !took_longer(mm_now() - begun, seconds), "destroying the group took %.1f s", mm_now() - begun);
    return true;
}

void good_steps(struct rig_rank *rank, const struct member *member, struct loss *loss, int steps) {
    for (int i = 0; i < steps && !rank->failed; i++)
        rig_step(rank, member->layer, member->saved, &loss->batch, loss->options, 0xff);
}

void another_group_works(const struct loss *before) {
    struct loss *loss = loss_make(before->batch.world, before->kind, before->policy, LOSS_TOKENS);
    struct rig_world world = rig_world_for(&loss->batch, 1, gpus_kind);
    rig_run(&world, &loss->batch, 1, loss->options);
    rig_compare(&loss->batch, loss->options, RIG_BOUND);
    loss_free(loss);
}
