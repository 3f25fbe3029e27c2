/* Forward calls that do not succeed, on simulated GPUs: what each rank's host is told, that no y looks like a result,
 * and whether the next call works, or ends at once because the group is broken.
 *
 *     fused_failures [SCHEDULES [FIRST_SEED]] */
#include <cmath>

#include "story.h"

namespace {

/* ---- The group stays whole ---- */

/* Between two good calls, all of them queued at once. */
void between_good_calls(story &s, const fused_batch &bad, const std::function<void(bool)> &spoil) {
    const fused_batch first = s.batch(), last = s.batch();
    const size_t before = s.prepare(first), failing = s.prepare(bad), after = s.prepare(last);
    s.group.launch_all(before);
    spoil(true);
    s.group.launch_all(failing);
    spoil(false);
    s.group.launch_all(after);
    s.finish();
    s.expect_good(before, first);
    s.expect_good(after, last);
}

void an_id_is_bad(story &s) {
    const unsigned bad_rank = s.ranks - 1;
    fused_batch bad = s.batch();
    const size_t slot = (size_t)(bad.first(bad_rank) * TOP_K + 5);
    bad.ids[slot] = (1ll << 32) + 1;
    between_good_calls(s, bad, [](bool) {});
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        s.expect_failed(1, r, CALL_REFUSED, bad_rank);
        const ids_fault fault = s.group.told(1, r).first.header[0].fault;
        s.expect(fault.kind == IDS_BAD_ID && fault.token == 2 && fault.slot == 1 && fault.id == bad.ids[slot],
                 "the fault is told wrongly");
    }
}

/* The lowest one is named, but each that refuses knows why itself. */
void several_refuse(story &s) {
    fused_batch bad = s.batch();
    for (unsigned r = 1; r < s.ranks; r++)
        bad.weights[(size_t)(bad.first(r) * TOP_K)] = NAN;
    between_good_calls(s, bad, [](bool) {});
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        const unsigned named = r > 0 || s.ranks == 1 ? r : 1;
        if (s.ranks > 1)
            s.expect_failed(1, r, CALL_REFUSED, named);
        else
            s.expect_good(1, bad);
    }
}

void a_host_refuses(story &s) {
    between_good_calls(s, s.batch(), [&](bool on) { s.group.misdeed_of(0).status = on; });
    for (unsigned r = 0; r < s.ranks; r++)
        s.expect_refused_by_host(1, r, 0);
}

/* What has failed first stays to be told until the host has seen it, whatever fails behind it. */
void several_calls_fail(story &s) {
    const unsigned last = s.ranks - 1;
    fused_batch bad = s.batch(), worse = s.batch(), good = s.batch();
    bad.ids[(size_t)(bad.first(last) * TOP_K)] = -2;
    worse.weights[0] = NAN;
    const auto expect_told = [&](uint32_t count, uint32_t first, uint32_t last_one, const char *when) {
        for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
            const call_told told = s.group.told(0, r);
            const call_failure &one = told.first, &other = told.last;
            s.expect(told.failures == count && one.result.call == first && other.result.call == last_one &&
                         one.number == (first == 1 ? 1 : count) && other.number == count &&
                         one.header[0].fault.kind == (first == 1 ? IDS_BAD_ID : IDS_BAD_WEIGHT) &&
                         other.header[0].fault.kind == (last_one == 1 ? IDS_BAD_ID : IDS_BAD_WEIGHT),
                     text("%s, rank %u: told of %u failures, first call %u, last call %u", when, r, told.failures,
                          one.result.call, other.result.call));
        }
    };
    const size_t calls[] = {s.prepare(bad), s.prepare(worse), s.prepare(good)};
    for (const size_t call : calls)
        s.group.launch_all(call);
    s.finish();
    expect_told(2, 1, 2, "before it is seen");
    for (unsigned r = 0; r < s.ranks; r++)
        s.group.see(r, 1);
    s.call(worse);
    expect_told(3, 4, 4, "when it has been seen");
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        bool untouched;
        const std::vector<uint16_t> y = s.group.y(calls[2], r, &untouched);
        for (const uint16_t value : y)
            s.expect((value & 0x7f80) != 0x7f80, text("y of the good call on rank %u is no number", r));
    }
}

void calls_differ(story &s) {
    const unsigned odd = s.ranks - 1;
    between_good_calls(s, s.batch(), [&](bool on) { s.group.misdeed_of(odd).agreed = on; });
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        const unsigned other = r == odd ? 0 : odd;
        s.expect_failed(1, r, CALL_MISMATCH, other);
        const call_failure told = s.group.told(1, r).first;
        s.expect(told.header[0].agreed[CALL_AGREED_WORDS - 1] == CALL_AGREED_WORDS - 1 + (other == odd) &&
                     told.header[1].agreed[CALL_AGREED_WORDS - 1] == CALL_AGREED_WORDS - 1 + (r == odd),
                 "the headers are told wrongly");
    }
}

/* All slots to the last rank's last expert. */
fused_batch crowded(story &s) {
    fused_batch b = s.batch();
    b.ids.assign(b.ids.size(), s.layer.experts - 1);
    return b;
}

void capacity_is_exceeded(story &s) {
    between_good_calls(s, crowded(s), [](bool) {});
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++) {
        s.expect_failed(1, r, CALL_CAPACITY, s.ranks - 1);
        s.expect(s.group.result(1, r).rows == s.ranks * TOKENS * TOP_K, "the demand is told wrongly");
    }
}

/* A rank keeps its first rows in plan order: expert, source rank, token, slot. */
fused_batch without_dropped(const story &s, const fused_batch &b, uint32_t capacity) {
    fused_batch kept = b;
    for (int64_t first = 0; first < s.layer.experts; first += EXPERTS_A_RANK) {
        uint32_t rows = 0;
        for (int64_t e = first; e < first + EXPERTS_A_RANK; e++)
            for (size_t slot = 0; slot < b.ids.size(); slot++)
                if (b.ids[slot] == e && rows++ >= capacity)
                    kept.ids[slot] = -1;
    }
    return kept;
}

const uint32_t CAPACITY = TOKENS * TOP_K; /* what a rank receives when slots go round */

void rows_are_dropped(story &s) {
    const fused_batch batches[] = {s.batch(), crowded(s), s.batch()};
    for (const fused_batch &b : batches)
        s.group.launch_all(s.prepare(b));
    s.finish();
    for (size_t call = 0; call < 3; call++)
        s.expect_good(call, without_dropped(s, batches[call], CAPACITY - 3));
}

/* ---- The group breaks ---- */

/* One rank's stream is not launched. It is launched late, when the others have given up. */
void a_rank_never_comes(story &s) {
    const unsigned late = s.ranks - 1;
    const fused_batch b = s.batch();
    s.expect_good(s.call(b), b);
    const size_t call = s.prepare(b);
    for (unsigned r = 0; r < late; r++)
        s.group.launch(call, r);
    s.finish();
    for (unsigned r = 0; r < late && s.wrong.empty(); r++)
        s.expect_stopped(call, r, 2, CALL_AWAITS_READY, late);
    s.group.launch(call, late);
    s.finish_at_once();
    s.expect_stopped(call, late, 2, CALL_AWAITS_READY, late);
    const size_t next = s.prepare(b);
    s.group.launch_all(next);
    s.finish_at_once();
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++)
        s.expect_stopped(next, r, 2, CALL_AWAITS_READY, late);
}

/* A rank does not go on to the end of a call: the others miss what comes last of it. */
void a_rank_stays_behind(story &s, unsigned dead, call_step missed) {
    const fused_batch b = s.batch();
    s.expect_good(s.call(b), b);
    const size_t call = s.prepare(b), next = s.prepare(b);
    s.group.misdeed_of(dead).no_tokens = missed == CALL_AWAITS_TOKENS;
    s.group.launch(call, dead, OPEN, PLACE);
    for (unsigned r = 0; r < s.ranks; r++)
        if (r != dead)
            s.launch(call, r);
    s.finish();
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++)
        if (r != dead)
            s.expect_stopped(call, r, 2, missed, dead);
    for (unsigned r = 0; r < s.ranks; r++)
        if (r != dead)
            s.group.launch(next, r);
    s.finish_at_once();
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++)
        if (r != dead)
            s.expect_stopped(next, r, 2, missed, dead);
}

void a_rank_dies_in_a_call(story &s) {
    a_rank_stays_behind(s, 0, CALL_AWAITS_RESULTS);
}

void a_rank_brings_no_tokens(story &s) {
    a_rank_stays_behind(s, s.ranks - 1, CALL_AWAITS_TOKENS);
}

/* All await the results of the second rank, which awaits the tokens of the third one: that one is to blame. */
void blame_goes_down_the_line(story &s) {
    const unsigned dead = 2;
    fused_batch b = s.batch();
    b.ids.assign(b.ids.size(), EXPERTS_A_RANK);
    const size_t call = s.prepare(b);
    s.group.misdeed_of(dead).no_tokens = true;
    s.group.launch(call, dead, OPEN, PLACE);
    for (unsigned r = 0; r < s.ranks; r++)
        if (r != dead)
            s.launch(call, r);
    s.finish();
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++)
        if (r != dead)
            s.expect_stopped(call, r, 1, CALL_AWAITS_TOKENS, dead);
}

/* A rank that needs nothing of the dead one has its result, and learns in the next call. */
void a_dead_rank_is_not_needed(story &s) {
    const unsigned dead = s.ranks - 1;
    fused_batch b = s.batch();
    for (int64_t &id : b.ids)
        id = id / EXPERTS_A_RANK == dead ? -1 : id;
    const size_t call = s.prepare(b), next = s.prepare(b);
    s.group.launch(call, dead, OPEN, PLACE);
    for (unsigned r = 0; r < dead; r++)
        s.launch(call, r);
    s.finish();
    for (unsigned r = 0; r < dead && s.wrong.empty(); r++)
        s.note(s.group.check_good(call, r, b, oracle_of(s.layer, b)));
    for (unsigned r = 0; r < dead; r++)
        s.group.launch(next, r);
    s.finish();
    for (unsigned r = 0; r < dead && s.wrong.empty(); r++)
        s.expect_stopped(next, r, s.group.told(next, r).stop.call, CALL_AWAITS_LEFT, dead);
}

/* A host can't go on between the plan and the forward kernel. */
void a_host_gives_up(story &s) {
    const unsigned quitter = s.ranks - 1;
    const fused_batch b = s.batch();
    s.expect_good(s.call(b), b);
    const size_t call = s.prepare(b), next = s.prepare(b);
    s.group.launch(call, quitter, OPEN, PLACE);
    s.group.launch(call, quitter, GIVE_UP, GIVE_UP);
    for (unsigned r = 0; r < quitter; r++)
        s.launch(call, r);
    s.finish();
    for (unsigned r = 0; r < quitter && s.wrong.empty(); r++)
        s.expect_stopped(call, r, 2, CALL_GAVE_UP, quitter);
    s.group.launch_all(next);
    s.finish_at_once();
    for (unsigned r = 0; r < s.ranks && s.wrong.empty(); r++)
        s.expect_stopped(next, r, 2, CALL_GAVE_UP, quitter);
}

group_options grouped() {
    group_options options;
    options.grouped = true;
    return options;
}

group_options told_in_one_place() {
    group_options options;
    options.one_told = true;
    return options;
}

group_options with_capacity(uint32_t capacity, bool drop) {
    group_options options;
    options.capacity = capacity;
    options.drop = drop;
    return options;
}

} // namespace

int main(int count, char **arguments) {
    const std::vector<named_story> stories = {
        {"an id is bad", an_id_is_bad, 1, {}},
        {"several ranks refuse", several_refuse, 2, {}},
        {"a host refuses", a_host_refuses, 1, {}},
        {"several calls fail", several_calls_fail, 1, told_in_one_place()},
        {"calls differ", calls_differ, 2, {}},
        {"capacity is exceeded", capacity_is_exceeded, 2, with_capacity(CAPACITY, false)},
        {"rows are dropped", rows_are_dropped, 1, with_capacity(CAPACITY - 3, true)},
        {"a rank never comes", a_rank_never_comes, 2, {}},
        {"a rank dies in a call", a_rank_dies_in_a_call, 2, {}},
        {"a rank dies in a grouped call", a_rank_dies_in_a_call, 2, grouped()},
        {"a rank brings no tokens", a_rank_brings_no_tokens, 2, {}},
        {"blame goes down the line", blame_goes_down_the_line, 3, {}},
        {"a dead rank is not needed", a_dead_rank_is_not_needed, 2, {}},
        {"a host gives up", a_host_gives_up, 2, {}},
    };
    return tell_all(stories, 4, count, arguments);
}
