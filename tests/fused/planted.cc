/* What the other programs here check is not seen for nothing: calls with one planted fault each are found out, by the
 * simulator's reports or by what they leave.
 *
 *     fused_planted [SCHEDULES [FIRST_SEED]] */
#include <cstdio>
#include <cstring>
#include <string>

#include "group.h"
#include "sim/seeds.h"

namespace {

const int64_t TOKENS = 6, ROOM = 8, TOP_K = 2, EXPERTS = 4;

/* What calls leave is compared exactly or not at all. */
const double NO_BOUND = 1e30;

struct fault_case {
    const char *name;
    misdeed wrong;        /* of rank 1 of two, in the last call */
    const char *reported; /* what the finding begins with, when order is checked */
    const char *left;     /* and when it is not; nullptr: what is read too early may be there in time */
    bool idle = false;    /* rank 1 gets no rows, and has long done its part when the other has not, */
    unsigned omit = 0;    /* and leaves this out */
};

/* Whose last call is the one. */
enum class planted_in { FORWARD, GROUPED_FORWARD, KEPT_BACKWARD, BACKWARD };

bool is_backward(planted_in where) {
    return where == planted_in::KEPT_BACKWARD || where == planted_in::BACKWARD;
}

struct fault_list {
    planted_in where;
    std::vector<fault_case> cases;
};

misdeed in_another_slot(int64_t hidden) {
    misdeed m;
    m.combine = (uint64_t)hidden * sizeof(uint16_t);
    return m;
}

misdeed dw_in_another_slot() {
    misdeed m;
    m.dw = sizeof(float);
    return m;
}

misdeed counted(int32_t misdeed::*what, int32_t more) {
    misdeed m;
    m.*what = more;
    return m;
}

misdeed which(bool misdeed::*what) {
    misdeed m;
    m.*what = true;
    return m;
}

std::vector<fault_list> all_faults() {
    const char *const stopped = "told outcome 4";
    return {
        {planted_in::FORWARD,
         {{"a result in another slot", in_another_slot(320), "race", "y of call 2"},
          {"results counted short", counted(&misdeed::result_tiles, -1), "race", nullptr},
          {"results counted long", counted(&misdeed::result_tiles, 1), stopped, stopped},
          {"activations counted short", counted(&misdeed::h_tiles, -1), "race", nullptr},
          {"tokens of the call before", which(&misdeed::stale), "y of call 2", "y of call 2"},
          {"gate kept for up", which(&misdeed::swapped), "gate", "gate"}}},
        {planted_in::GROUPED_FORWARD,
         {{"a sum in another slot", in_another_slot(320), "race", "y of call 2"},
          {"results to be summed counted short", counted(&misdeed::result_tiles, -1), "race", nullptr},
          {"results to be summed counted long", counted(&misdeed::result_tiles, 1), stopped, stopped}}},
        {planted_in::KEPT_BACKWARD,
         {{"a row of dx in another slot", in_another_slot(64), "race", "dx of call 2"},
          {"a dw in another slot", dw_in_another_slot(), "race", "dweights of call 2"},
          {"dx counted short", counted(&misdeed::result_tiles, -1), "race", nullptr, true},
          {"dx counted long", counted(&misdeed::result_tiles, 1), stopped, stopped},
          {"dw counted short", counted(&misdeed::wants_dw, -1), "race", nullptr, true, 1 << DX},
          {"dw counted long", counted(&misdeed::wants_dw, 1), stopped, stopped},
          {"gradients of gate and up counted short", counted(&misdeed::dgrad_tiles, -1), "race", nullptr},
          {"gradients of gate and up counted long", counted(&misdeed::dgrad_tiles, 1), stopped, stopped},
          {"gradients of the call before", which(&misdeed::stale), "dx of call 4", "dx of call 4"},
          {"gradients of gate stored for those of up", which(&misdeed::swapped), "dx of call 2", "dx of call 2"},
          {"gate read for up", which(&misdeed::swapped_in), "dx of call 2", "dx of call 2"}}},
        {planted_in::BACKWARD,
         {{"gate and up counted short", counted(&misdeed::h_tiles, -1), "race", nullptr},
          {"gate and up counted long", counted(&misdeed::h_tiles, 1), stopped, stopped}}},
    };
}

/* A forward, or a forward and its backward; the last of these is `wrong`. */
std::string make_calls(fused_group &group, planted_in where, const fused_batch &batch, const misdeed &wrong) {
    const bool backward = is_backward(where);
    const size_t call = group.prepare(batch);
    for (unsigned r = 0; r < 2; r++)
        group.poison(r, 0xff);
    group.misdeed_of(1) = backward ? misdeed() : wrong;
    group.launch_all(call);
    if (backward) {
        const size_t next = group.prepare_backward(call, batch);
        for (unsigned r = 0; r < 2; r++)
            group.poison_for_backward(r, 0xff);
        group.misdeed_of(1) = wrong;
        group.launch_all(next);
    }
    std::string found = group.finish();
    if (found.empty())
        found = group.check_good(call, batch);
    if (found.empty())
        found = backward ? group.check_backward(call + 1, batch, NO_BOUND) : group.check_kept(batch);
    return found;
}

/* What is of a call before needs one, and every forward has one, which is good. */
std::string find(planted_in where, const fault_case &planted, uint64_t seed, bool check_order) {
    const bool backward = is_backward(where);
    const fused_layer layer =
        backward ? make_layer(64, 64, EXPERTS, TOP_K, true, seed) : make_layer(320, 192, EXPERTS, TOP_K, true, seed);
    group_options options;
    options.world = 2;
    options.max_tokens = ROOM;
    options.ctas = {3};
    options.omit = {0, planted.omit};
    options.grouped = where == planted_in::GROUPED_FORWARD;
    options.keep = where != planted_in::BACKWARD;
    sim::options machine;
    machine.seed = seed;
    machine.devices = 2;
    machine.check_order = check_order;
    fused_group group(layer, options, machine);
    const auto draw = [&](uint64_t batch_seed) {
        fused_batch batch = make_batch(layer, {TOKENS, TOKENS}, RIG_UNIFORM, batch_seed);
        for (int64_t &id : batch.ids)
            id %= planted.idle ? EXPERTS / 2 : EXPERTS;
        return batch;
    };
    if (!backward || planted.wrong.stale) {
        const std::string fault = make_calls(group, where, draw(seed), {});
        if (!fault.empty())
            return "in the good call: " + fault;
    }
    return make_calls(group, where, draw(seed + 1), planted.wrong);
}

/* In every schedule, or in half of them when it is a matter of time. */
bool is_found(planted_in where, const fault_case &planted, uint64_t seeds, uint64_t first) {
    uint64_t hits = 0;
    std::string other;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        const bool check_order = planted.left == nullptr || seed % 2 == 0;
        const std::string found = find(where, planted, seed, check_order);
        const char *expected = check_order ? planted.reported : planted.left;
        if (found.compare(0, std::strlen(expected), expected) == 0)
            hits++;
        else
            other = found;
    }
    const bool good = hits >= (planted.left != nullptr ? seeds : seeds / 2);
    if (!good)
        std::printf("%s: found in %llu schedules of %llu; else \"%s\"\n", planted.name, (unsigned long long)hits,
                    (unsigned long long)seeds, other.c_str());
    return good;
}

} // namespace

int main(int count, char **arguments) {
    const uint64_t seeds = argument_or(count, arguments, 1, 2);
    const uint64_t first = argument_or(count, arguments, 2, 1);
    unsigned failed = 0, faults = 0;
    for (const fault_list &list : all_faults())
        for (const fault_case &planted : list.cases) {
            failed += !is_found(list.where, planted, seeds, first);
            faults++;
        }
    std::printf("%u planted faults, %llu schedules each: %u not found\n", faults, (unsigned long long)seeds, failed);
    return failed > 0;
}
