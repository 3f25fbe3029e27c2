/* Backwards that do not succeed, on simulated GPUs: what each rank's host is told, that no gradient looks like a result
 * and none that is added to is changed without a word, and whether the next calls work, or end at once because the
 * group is broken.
 *
 *     fused_backward_failures [SCHEDULES [FIRST_SEED]] */
#include "story.h"

namespace {

/* ---- The group stays whole ---- */

/* A backward fails; another forward and its backward are good. All queued at once. */
void before_good_calls(story &s, const std::function<void(bool)> &spoil) {
    const fused_batch bad = s.batch(), good = s.batch();
    const size_t before = s.prepare(bad), failing = s.prepare_backward(before, bad);
    s.group.launch_all(before);
    spoil(true);
    s.group.launch_all(failing);
    spoil(false);
    const size_t next = s.prepare(good);
    s.group.launch_all(next);
    const size_t after = s.backward(next, good);
    s.expect_good(before, bad);
    s.expect_good(next, good);
    s.expect_good(after, good);
}

void a_host_refuses(story &s) {
    before_good_calls(s, [&](bool on) { s.group.misdeed_of(0).status = on; });
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        s.expect_refused_by_host(1, r, 0);
        s.expect_added(1, r, false);
    }
}

void calls_differ(story &s) {
    const unsigned odd = s.ranks - 1;
    before_good_calls(s, [&](bool on) { s.group.misdeed_of(odd).agreed = on; });
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        s.expect_failed(1, r, CALL_MISMATCH, r == odd ? 0 : odd);
        s.expect_added(1, r, false);
    }
}

/* A forward that the device finds bad, and its backward; then good ones. */
void after_a_bad_forward(story &s, const fused_batch &bad, call_outcome outcome, unsigned by, call_outcome backward,
                         unsigned backward_by) {
    const fused_batch good = s.batch();
    const size_t failing = s.prepare(bad), its_backward = s.prepare_backward(failing, bad);
    s.group.launch_all(failing);
    s.group.launch_all(its_backward);
    const size_t next = s.prepare(good);
    s.group.launch_all(next);
    const size_t after = s.backward(next, good);
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        s.expect_failed(failing, r, outcome, by);
        s.expect_failed(its_backward, r, backward, backward_by);
        s.expect_added(its_backward, r, false);
    }
    s.expect_good(next, good);
    s.expect_good(after, good);
}

void the_forward_was_refused(story &s) {
    const unsigned bad_rank = s.ranks - 1;
    fused_batch bad = s.batch();
    bad.ids[(size_t)(bad.first(bad_rank) * TOP_K)] = -7;
    after_a_bad_forward(s, bad, CALL_REFUSED, bad_rank, CALL_NO_FORWARD, 0);
}

void the_forward_had_no_room(story &s) {
    fused_batch bad = s.batch();
    bad.ids.assign(bad.ids.size(), s.layer.experts - 1);
    after_a_bad_forward(s, bad, CALL_CAPACITY, s.ranks - 1, CALL_CAPACITY, s.ranks - 1);
}

/* ---- The group breaks ---- */

/* A good forward whose backward one rank does not make to its end. */
struct broken {
    fused_batch batch;
    size_t call, next;
};

broken begin(story &s, const fused_batch &batch) {
    const size_t forward = s.call(batch);
    s.expect_good(forward, batch);
    const size_t call = s.prepare_backward(forward, batch);
    return {batch, call, s.prepare(batch)};
}

/* Every call of the others ends at once from then on. */
void expect_broken(story &s, const broken &b, unsigned dead, call_step step, unsigned culprit) {
    for (unsigned r = 0; r < s.ranks; r++)
        if (r != dead)
            s.group.launch(b.next, r);
    s.finish_at_once();
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++)
        if (r != dead)
            s.expect_stopped(b.next, r, 2, step, culprit);
}

/* All ranks but one give the call up alike, whether or not they have begun to add. */
void expect_stopped_by(story &s, const broken &b, unsigned dead, call_step step, bool added) {
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++)
        if (r != dead) {
            s.expect_stopped(b.call, r, 2, step, dead);
            s.expect_added(b.call, r, added);
        }
}

void a_rank_never_comes(story &s) {
    const unsigned late = s.ranks - 1;
    const broken b = begin(s, s.batch());
    for (unsigned r = 0; r < late; r++)
        s.group.launch(b.call, r);
    s.finish();
    expect_stopped_by(s, b, late, CALL_AWAITS_READY, false);
    s.group.launch(b.call, late);
    s.finish_at_once();
    s.expect_stopped(b.call, late, 2, CALL_AWAITS_READY, late);
    expect_broken(s, b, s.ranks, CALL_AWAITS_READY, late);
}

/* All rows are there, and gradients of weights are made while the others await what never comes: that is told where
 * they are added. */
void a_rank_dies_in_a_call(story &s) {
    const broken b = begin(s, s.batch());
    s.group.launch(b.call, 0, OPEN, RESUME);
    for (unsigned r = 1; r < s.ranks; r++)
        s.group.launch(b.call, r);
    s.finish();
    expect_stopped_by(s, b, 0, CALL_AWAITS_RESULTS, s.group.options().accumulate);
    expect_broken(s, b, 0, CALL_AWAITS_RESULTS, 0);
}

/* The calls that were queued behind it are stopped too, and make nobody forget what was added. */
void calls_are_queued_behind_a_stop(story &s) {
    const broken b = begin(s, s.batch());
    s.group.launch(b.call, 0, OPEN, RESUME);
    for (unsigned r = 1; r < s.ranks; r++) {
        s.group.launch(b.call, r);
        s.group.launch(b.next, r);
    }
    s.finish();
    for (unsigned r = 1; r < s.ranks && s.wrong.empty(); r++) {
        const call_told told = s.group.told(b.next, r);
        s.expect(told.ended == 3 && told.stopped.outcome == CALL_STOPPED && told.stopped.call == 2 && told.spoilt == 1,
                 text("rank %u: told of call %u, stopped call %u, spoilt %u", r, told.ended, told.stopped.call,
                      told.spoilt));
        s.expect_nan(b.next, r);
    }
}

/* Without its rows nothing is added. */
void a_rank_brings_no_gradients(story &s) {
    const unsigned dead = s.ranks - 1;
    const broken b = begin(s, s.batch());
    s.group.misdeed_of(dead).no_tokens = true;
    s.group.launch(b.call, dead, OPEN, RESUME);
    for (unsigned r = 0; r < dead; r++)
        s.group.launch(b.call, r);
    s.finish();
    expect_stopped_by(s, b, dead, CALL_AWAITS_TOKENS, false);
    expect_broken(s, b, dead, CALL_AWAITS_TOKENS, dead);
}

/* Between the plan and the large kernel. Whether the others have begun to add by then is told. */
void a_host_gives_up(story &s) {
    const unsigned quitter = s.ranks - 1;
    const broken b = begin(s, s.batch());
    s.group.launch(b.call, quitter, OPEN, RESUME);
    s.group.launch(b.call, quitter, GIVE_UP, GIVE_UP);
    for (unsigned r = 0; r < quitter; r++)
        s.group.launch(b.call, r);
    s.finish();
    for (unsigned r = 0; r < quitter && s.wrong.empty(); r++)
        s.expect_stopped(b.call, r, 2, CALL_GAVE_UP, quitter);
    expect_broken(s, b, quitter, CALL_GAVE_UP, quitter);
}

/* A rank that needs nothing of the dead one has its gradients, and learns in the next call. */
void a_dead_rank_is_not_needed(story &s) {
    const unsigned dead = s.ranks - 1;
    fused_batch batch = s.batch();
    for (int64_t &id : batch.ids)
        id = id / EXPERTS_A_RANK == dead ? -1 : id;
    const broken b = begin(s, batch);
    s.group.launch(b.call, dead, OPEN, RESUME);
    for (unsigned r = 0; r < dead; r++)
        s.group.launch(b.call, r);
    s.finish();
    for (unsigned r = 0; r < dead; r++)
        s.expect(s.group.result(b.call, r).outcome == CALL_GOOD, text("rank %u has failed", r));
    for (unsigned r = 0; r < dead; r++)
        s.group.launch(b.next, r);
    s.finish();
    for (unsigned r = 0; r < dead && s.wrong.empty(); r++)
        s.expect_stopped(b.next, r, s.group.told(b.next, r).stop.call, CALL_AWAITS_LEFT, dead);
}

group_options added(bool accumulate, uint32_t capacity = PLAN_NO_CAPACITY) {
    group_options options;
    options.accumulate = accumulate;
    options.capacity = capacity;
    return options;
}

group_options added_and_told_in_one_place() {
    group_options options = added(true);
    options.one_told = true;
    return options;
}

} // namespace

int main(int count, char **arguments) {
    const uint32_t capacity = TOKENS * TOP_K; /* what a rank receives when slots go round */
    const std::vector<named_story> stories = {
        {"a host refuses", a_host_refuses, 1, added(false)},
        {"calls differ", calls_differ, 2, added(true)},
        {"the forward was refused", the_forward_was_refused, 1, added(true)},
        {"the forward had no room", the_forward_had_no_room, 2, added(false, capacity)},
        {"a rank never comes", a_rank_never_comes, 2, added(true)},
        {"a rank dies in a call", a_rank_dies_in_a_call, 2, added(false)},
        {"a rank dies in a call that adds", a_rank_dies_in_a_call, 2, added(true)},
        {"calls are queued behind a stop", calls_are_queued_behind_a_stop, 2, added_and_told_in_one_place()},
        {"a rank brings no gradients", a_rank_brings_no_gradients, 2, added(true)},
        {"a host gives up", a_host_gives_up, 2, added(true)},
        {"a dead rank is not needed", a_dead_rank_is_not_needed, 2, added(false)},
    };
    return tell_all(stories, 2, count, arguments);
}
