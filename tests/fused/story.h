/* Calls on simulated GPUs that do not succeed, told as stories: what happens in a group, and what each rank's host is
 * told of it. */
#ifndef TESTS_FUSED_STORY_H
#define TESTS_FUSED_STORY_H

#include <cstdarg>
#include <cstdio>
#include <functional>
#include <set>
#include <string>

#include "group.h"

const int64_t TOKENS = 6, TOP_K = 2, EXPERTS_A_RANK = 2;
const uint64_t SECOND = 1000ull * 1000 * 1000;
const double NO_BOUND = 1e30; /* layers are exact */

std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A group, and the first thing that is not as it should be. */
class story {
  public:
    story(unsigned world, uint64_t seed, const group_options &options = {})
        : ranks(world), layer(make_layer(64, 64, EXPERTS_A_RANK * world, TOP_K, true, seed)),
          group(layer, options_of(world, seed, options), machine_of(world, seed)), draws(rig_seed(seed)) {}

    /* Tokens whose slots go round all experts, so that every rank has rows for every other. */
    fused_batch batch() {
        fused_batch b = make_batch(layer, std::vector<int64_t>(ranks, TOKENS), RIG_UNIFORM, rig_next(&draws));
        for (size_t slot = 0; slot < b.ids.size(); slot++)
            b.ids[slot] = (int64_t)slot % layer.experts;
        return b;
    }

    size_t prepare(const fused_batch &b) { return group.prepare(b, poison()); }
    size_t prepare_backward(size_t forward, const fused_batch &b) {
        return group.prepare_backward(forward, b, poison());
    }

    /* With growing capacity mm_forward is launched early; in some schedules. */
    void launch(size_t number, unsigned rank) {
        if (group.is_backward(number))
            return group.launch(number, rank);
        const bool early = draws.state % 3 > 0;
        group.launch(number, rank, OPEN, PLACE);
        group.launch(number, rank, early ? FORWARD_IF_ROOM : FORWARD, early ? FORWARD_IF_ROOM : FORWARD);
    }
    /* Prepared and launched everywhere, and run to the end. */
    size_t call(const fused_batch &b) {
        const size_t number = prepare(b);
        group.launch_all(number);
        finish();
        return number;
    }
    size_t backward(size_t forward, const fused_batch &b) {
        const size_t number = prepare_backward(forward, b);
        group.launch_all(number);
        finish();
        return number;
    }
    void finish() { note(group.finish()); }
    /* Without any wait for a time to pass. */
    void finish_at_once() {
        const sim::state state = group.machine().run();
        if (state == sim::state::faulted)
            note(sim::describe(group.machine().reports().front()));
        expect(state == sim::state::idle, "the calls did not end at once");
    }

    void expect(bool so, const std::string &what) {
        if (!so)
            note(what);
    }
    void expect_good(size_t call, const fused_batch &b) {
        if (wrong.empty())
            note(group.is_backward(call) ? group.check_backward(call, b, NO_BOUND) : group.check_good(call, b));
    }
    void expect_failed(size_t call, unsigned rank, call_outcome outcome, unsigned by) {
        const call_told told = group.told(call, rank);
        const call_result result = group.result(call, rank);
        expect(told.ended == call + 1 && result.call == call + 1 && result.outcome == (uint32_t)outcome &&
                   result.rank == by,
               text("call %zu on rank %u: told of call %u, failed call %u, outcome %u by rank %u, expected %d by %u",
                    call + 1, rank, told.ended, result.call, result.outcome, result.rank, outcome, by));
        if (group.is_backward(call))
            note(group.check_spoilt(call, rank, told.spoilt != 0));
        else
            expect_nan(call, rank);
    }
    /* That rank itself has nothing to be told by the device. */
    void expect_refused_by_host(size_t call, unsigned rank, unsigned by) {
        if (rank != by)
            return expect_failed(call, rank, CALL_REFUSED, by);
        const call_told told = group.told(call, rank);
        expect(told.ended == call + 1 && told.failures == 0, text("call %zu: its own rank was told", call + 1));
        if (group.is_backward(call))
            note(group.check_spoilt(call, rank, false));
        else
            expect_nan(call, rank);
    }
    void expect_nan(size_t call, unsigned rank) {
        bool untouched;
        for (const uint16_t value : group.y(call, rank, &untouched))
            expect(value == 0x7fc0, text("y of the failed call %zu on rank %u is not NaN", call + 1, rank));
        expect(untouched, "memory between elements of y was written");
    }
    /* Whether the rank's host was told that gradients of weights have a part of what was to be added. */
    void expect_added(size_t call, unsigned rank, bool added) {
        expect((group.told(call, rank).spoilt != 0) == added,
               text("call %zu on rank %u: told spoilt %u", call + 1, rank, group.told(call, rank).spoilt));
    }
    /* Stopped by any rank, which says why. */
    void expect_stopped(size_t call, unsigned rank, uint32_t in_call, call_step step, unsigned culprit) {
        const call_told told = group.told(call, rank);
        expect_failed(call, rank, CALL_STOPPED, told.stopped.rank);
        expect(told.stop.call == in_call && told.stop.step == (uint32_t)step && told.stop.culprit == culprit,
               text("call %zu on rank %u: stopped by rank %u in call %u at step %u because of rank %u, expected call "
                    "%u, step %d, rank %u",
                    call + 1, rank, told.stopped.rank, told.stop.call, told.stop.step, told.stop.culprit, in_call, step,
                    culprit));
    }

    const unsigned ranks;
    const fused_layer layer;
    fused_group group;
    std::string wrong;

    /* The first fault counts. */
    void note(const std::string &fault) {
        if (wrong.empty())
            wrong = fault;
    }

  private:
    unsigned char poison() const { return draws.state % 2 == 0 ? 0xff : 0x7f; }
    static group_options options_of(unsigned world, uint64_t seed, group_options options) {
        options.world = world;
        options.max_tokens = TOKENS;
        options.chunks = 1;
        options.ctas = {1 + (unsigned)(seed % 3), 2};
        options.backward_ctas = {2, 1 + (unsigned)(seed % 3)};
        options.keep = seed % 2 == 0;
        options.narrow = seed % 3 == 0;
        options.layout = (y_layout)(seed % 4);
        options.programmatic = seed % 2 == 0;
        return options;
    }
    static sim::options machine_of(unsigned world, uint64_t seed) {
        sim::options options;
        options.seed = seed;
        options.devices = world;
        options.multiprocessors = 2 + (unsigned)(seed % 3);
        options.check_order = seed % 2 == 0 || seed % 3 == 0;
        return options;
    }

    rig_random draws;
};

struct named_story {
    const char *name;
    void (*tell)(story &s);
    unsigned least_world;
    group_options options;
};

/* Tells each story under some seeds, with 1 to 4 ranks, and prints what is not as it should be. The program's
 * arguments: how many seeds, and the first one. The result of main(). */
int tell_all(const std::vector<named_story> &stories, uint64_t seeds, int count, char **arguments);

#endif
