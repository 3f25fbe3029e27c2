/* Stories; see story.h. */
#include "story.h"
#include "sim/seeds.h"

#include <cstring>

std::string text(const char *format, ...) {
    char line[300];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return line;
}

static bool holds(const named_story &what, unsigned world, uint64_t seed, std::set<uint64_t> *schedules) {
    story s(world, seed, what.options);
    what.tell(s);
    schedules->insert(s.group.machine().counters().trace);
    if (!s.wrong.empty())
        std::printf("%s, W %u, seed %llu: %s\n", what.name, world, (unsigned long long)seed, s.wrong.c_str());
    return s.wrong.empty();
}

int tell_all(const std::vector<named_story> &stories, uint64_t seeds, int count, char **arguments) {
    seeds = argument_or(count, arguments, 1, rig_small() ? 1 : seeds);
    const uint64_t first = argument_or(count, arguments, 2, 1);
    static const unsigned worlds[] = {2, 4, 1, 2, 3, 2};
    std::set<uint64_t> schedules;
    unsigned failed = 0;
    for (const named_story &what : stories)
        for (uint64_t seed = first; seed < first + seeds; seed++) {
            const unsigned world = worlds[seed % 6];
            failed += !holds(what, world < what.least_world ? what.least_world : world, seed, &schedules);
        }
    std::printf("%zu schedules tried: %u failed\n", schedules.size(), failed);
    return failed > 0;
}
