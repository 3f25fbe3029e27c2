/* What came of the cases: one line a group, and one for each case that failed. */
#ifndef TESTS_CONFORMANCE_REPORT_H
#define TESTS_CONFORMANCE_REPORT_H

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "case.h"

namespace conformance {

enum class verdict { not_run, passed, failed };

struct outcome {
    verdict result = verdict::not_run;
    std::string text; /* what is wrong, or why it was not run */
};

/* true: all passed. */
inline bool print_outcomes(const case_list &cases, const std::vector<outcome> &outcomes) {
    struct group {
        std::string name;
        size_t count[3];
    };
    std::vector<group> groups;
    size_t all[3] = {};
    for (size_t i = 0; i < cases.size(); i++) {
        const std::string name = cases[i].name.substr(0, cases[i].name.find(':'));
        auto at = std::find_if(groups.begin(), groups.end(), [&](const group &g) { return g.name == name; });
        if (at == groups.end())
            at = groups.insert(at, {name, {}});
        at->count[(size_t)outcomes[i].result]++;
        all[(size_t)outcomes[i].result]++;
    }
    groups.push_back({"all", {all[0], all[1], all[2]}});
    std::printf("%-20s %6s %6s %7s\n", "group", "passed", "failed", "not run");
    for (const group &g : groups)
        std::printf("%-20s %6zu %6zu %7zu\n", g.name.c_str(), g.count[(size_t)verdict::passed],
                    g.count[(size_t)verdict::failed], g.count[(size_t)verdict::not_run]);
    for (size_t i = 0; i < cases.size(); i++)
        if (outcomes[i].result == verdict::failed)
            std::printf("FAIL %s\n     %s\n", cases[i].name.c_str(), outcomes[i].text.c_str());
    return all[(size_t)verdict::passed] == cases.size();
}

} // namespace conformance

#endif
