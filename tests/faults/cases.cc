/* The planted faults, and how each must be reported. */
#include "fault_case.h"

using sim::fault;

namespace faults {
namespace {

/* In one CTA of device 0, at lines marked with its own name. */
fault_case in_cta(const char *name, unsigned threads, fault kind, std::vector<int> warps) {
    fault_case c;
    c.name = name;
    c.threads = threads;
    c.kinds = {kind};
    c.places = {name};
    c.warps_named = warps;
    return c;
}

/* Nobody can progress: the message says who waits for what, and where. */
fault_case deadlock(const char *name, unsigned threads, std::vector<std::string> says) {
    fault_case c = in_cta(name, threads, fault::deadlock, {});
    c.devices_named = c.ctas_named = {-1};
    c.says = says;
    c.says.push_back("device 0 CTA 0 warp 0 (warp0)");
    return c;
}

/* Between two CTAs, by thread 0 of each. What goes wrong only when both run at once doesn't show under every seed; nor
 * does a race between a CTA and one that begins after it has ended, when the later takes the earlier's place in the
 * simulator's order of events. */
fault_case between_ctas(const char *name, fault kind) {
    fault_case c = in_cta(name, 32, kind, {0});
    c.ctas = 2;
    c.ctas_named = {0, 1};
    return c;
}

fault_case between_devices(const char *name, fault kind) {
    fault_case c = in_cta(name, 32, kind, {0});
    c.devices = 2;
    c.devices_named = {0, 1};
    return c;
}

/* A product with a tile of a and two of b behind the barriers. */
fault_case product(const char *name, fault kind) {
    fault_case c = in_cta(name, 128, kind, {0, 1, 2, 3});
    c.shared_bytes = 1024 + 3 * 8192;
    return c;
}

void add_copies(std::vector<fault_case> &all) {
    all.push_back(in_cta("store_without_fence", 128, fault::proxy, {0}));
    all.push_back(in_cta("bulk_load_without_fence", 32, fault::proxy, {0}));
    /* Where the copy has not even begun, nobody has written what is read. */
    all.push_back(in_cta("wrong_parity", 64, fault::race, {0, 1}));
    all.back().kinds.push_back(fault::uninitialised);
    all.back().places.push_back("load_box");
    all.back().shared_bytes = 1024 + 2 * 8192;
    all.push_back(in_cta("full_not_waited", 64, fault::race, {0, 1}));
    all.back().kinds.push_back(fault::uninitialised);
    all.back().places.push_back("load_box");
    for (const char *name : {"stage_overwritten", "stages_overlap"}) {
        all.push_back(in_cta(name, 64, fault::race, {0, 1}));
        all.back().shared_bytes = 1024 + 2 * 8192;
        all.back().places = {"load_box", "stages"};
    }
    /* A reader that comes late finds a phase gone by. */
    all[all.size() - 2].kinds.push_back(fault::mbarrier);
    all[all.size() - 2].places.push_back("wait_phase");
    /* Either more lands than the phase expects, or what it did not wait for is read. */
    all.push_back(in_cta("too_few_bytes", 128, fault::mbarrier, {}));
    all.back().kinds.push_back(fault::race);
    all.back().kinds.push_back(fault::uninitialised);
    all.push_back(deadlock("too_many_bytes", 128, {"0 of 1 arrivals and 16 bytes are missing"}));
    all.push_back(in_cta("slot_reused", 32, fault::race, {0}));
    all.push_back(in_cta("store_read_back", 32, fault::race, {0}));
    all.push_back(in_cta("store_outlives_cta", 32, fault::lifetime, {0}));
    all.back().says = {"bulk store"};
    all.back().always = false;
    all.push_back(in_cta("misaligned_box", 32, fault::alignment, {0}));
    all.back().places = {"load_box"};
    all.push_back(in_cta("ragged_copy", 32, fault::alignment, {0}));
    all.push_back(in_cta("wrong_dimensions", 32, fault::tensor_map, {0}));
    all.push_back(in_cta("ragged_box", 32, fault::tensor_map, {0}));
    all.push_back(in_cta("store_below_zero", 128, fault::tensor_map, {0}));
    all.push_back(in_cta("no_map", 32, fault::tensor_map, {0}));
}

void add_products(std::vector<fault_case> &all) {
    all.push_back(product("operands_without_fence", fault::proxy));
    all.push_back(product("operands_not_waited", fault::race));
    all.back().kinds.push_back(fault::uninitialised);
    all.push_back(product("operands_overwritten", fault::race));
    all.push_back(product("wrong_swizzle", fault::swizzle));
    all.push_back(product("products_at_two_places", fault::divergence));
    all.back().says = {"different wgmmas", "faults/products.cu:"};
    all.push_back(product("misaligned_operand", fault::descriptor));
    all.push_back(product("operand_out_of_bounds", fault::descriptor));
    all.push_back(product("accumulators_written", fault::accumulator));
    all.push_back(product("accumulators_read", fault::accumulator));
    all.push_back(product("wait_too_weak", fault::accumulator));
    all.push_back(product("accumulators_without_fence", fault::accumulator));
}

void add_barriers(std::vector<fault_case> &all) {
    all.push_back(in_cta("barrier_never_initialised", 32, fault::mbarrier, {0}));
    all.push_back(in_cta("barrier_init_without_fence", 32, fault::mbarrier, {0}));
    all.push_back(between_ctas("peer_barrier_too_early", fault::mbarrier));
    all.back().cluster = 2;
    all.push_back(in_cta("too_many_arrivals", 32, fault::mbarrier, {0}));
    all.back().places.push_back("wait_phase");
    /* The skipping warp's data are unordered, or the other one's wait finds a phase gone by. */
    all.push_back(in_cta("phases_skipped", 64, fault::race, {0, 1}));
    all.back().kinds.push_back(fault::mbarrier);
    all.back().places.push_back("wait_phase");
    all.push_back(deadlock("arrival_missing", 64, {"mbarrier", "1 of 64 arrivals"}));
    all.push_back(in_cta("named_counts_differ", 96, fault::named_barrier, {0, 1, 2}));
    all.push_back(deadlock("named_not_reached", 96, {"named barrier 3 (64 of 96 threads came)"}));
    all.push_back(deadlock("named_wrong_number", 128, {"named barrier 1 (32 of 64 threads came)", "(warp3)"}));
    all.back().says.pop_back();
    /* Noticed when somebody comes after it has left; else nobody can progress. */
    all.push_back(in_cta("warp_left_early", 96, fault::named_barrier, {}));
    all.back().kinds.push_back(fault::deadlock);
    all.back().devices_named.push_back(-1);
    all.back().ctas_named.push_back(-1);
    all.push_back(in_cta("lane_missing", 32, fault::divergence, {0}));
    all.push_back(in_cta("lanes_diverge", 32, fault::divergence, {0}));
    all.push_back(in_cta("vote_in_branch", 32, fault::divergence, {0}));
    all.back().says = {"warp_ballot", "warp_sync", "faults/barriers.cu:"};
    all.push_back(in_cta("votes_at_two_places", 32, fault::divergence, {0}));
    all.back().says = {"comes to warp_ballot", "at warp_ballot, faults/barriers.cu:"};
    all.push_back(in_cta("index_by_one_lane", 64, fault::divergence, {0, 1}));
    all.back().says = {"warp_index"};
    all.push_back(between_ctas("peer_left_early", fault::lifetime));
    all.back().cluster = 2;
    all.back().always = false;
    all.push_back(deadlock("waits_for_absent", 32, {"polls memory"}));
    all.back().says.pop_back();
    all.back().ctas = 2;
    all.back().resident_planted = 1;
    all.push_back(in_cta("registers_taken_down", 384, fault::registers, {0, 1, 2, 3}));
    all.push_back(deadlock("registers_overtaken", 384, {"waits for registers"}));
    all.back().says.pop_back();
}

void add_memory(std::vector<fault_case> &all) {
    all.push_back(in_cta("shared_out_of_bounds", 32, fault::bounds, {0}));
    all.back().shared_bytes = 1024;
    all.push_back(in_cta("global_out_of_bounds", 32, fault::bounds, {0}));
    all.push_back(in_cta("bulk_out_of_bounds", 32, fault::bounds, {0}));
    all.push_back(in_cta("shared_uninitialised", 32, fault::uninitialised, {0}));
    all.push_back(in_cta("global_uninitialised", 32, fault::uninitialised, {0}));
    all.push_back(in_cta("misaligned_word", 32, fault::alignment, {0}));
    for (const char *name : {"warp_sync_missing", "shuffle_taken_for_sync", "election_taken_for_sync"})
        all.push_back(in_cta(name, 32, fault::race, {0}));
    all.push_back(in_cta("cta_sync_missing", 64, fault::race, {0, 1}));
    all.push_back(between_ctas("two_writers", fault::race));
    all.back().always = false;
}

void add_messages(std::vector<fault_case> &all) {
    for (const char *name : {"flag_without_release", "flag_without_acquire", "acquired_by_another",
                             "vote_taken_for_sync", "epoch_not_advanced", "answer_not_awaited", "bulk_not_landed"}) {
        all.push_back(between_ctas(name, fault::race));
        all.back().always = false;
    }
    all.push_back(between_ctas("arrival_taken_for_release", fault::race));
    all.back().cluster = 2;
    /* The word or the flag itself. */
    for (const char *name : {"release_scope_too_small", "peer_store_without_release"}) {
        all.push_back(between_devices(name, fault::race));
        all.back().places.push_back("wait_flag");
    }
    all.push_back(between_devices("slot_read_before_arrival", fault::race));
    all.back().ctas = 2;
    all.back().ctas_named = {0, 1};
    all.back().always = false;
    all.push_back(deadlock("ranks_wait_for_each_other", 32, {"polls memory", "device 1 CTA 0 warp 0 (warp0)"}));
    all.back().devices = 2;
}

} // namespace

std::vector<fault_case> all_faults() {
    std::vector<fault_case> all;
    add_copies(all);
    add_products(all);
    add_barriers(all);
    add_memory(all);
    add_messages(all);
    return all;
}

} // namespace faults
