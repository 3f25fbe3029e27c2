/* What is expected of the simulator for a planted fault. */
#ifndef TESTS_FAULTS_FAULT_CASE_H
#define TESTS_FAULTS_FAULT_CASE_H

#include <string>
#include <vector>

#include "sim/sim.h"

namespace faults {

/* The lists hold what a report may name: the two sides of a race are both right. */
struct fault_case {
    std::string name; /* of the kernel too */
    unsigned threads = 32;
    size_t shared_bytes = 16384;
    std::vector<sim::fault> kinds;
    std::vector<std::string> places; /* of lines marked "here: name"; empty: the fault has no line */
    std::vector<int> warps_named;    /* empty: any */
    std::vector<int> ctas_named = {0};
    std::vector<int> devices_named = {0};
    std::vector<std::string> says; /* in the message */
    unsigned ctas = 1, cluster = 1, devices = 1;
    unsigned resident_planted = 0; /* how many CTAs run at once with the fault, if not all */
    bool always = true;            /* shows under every seed; or else under some */
};

std::vector<fault_case> all_faults();

} // namespace faults

#endif
