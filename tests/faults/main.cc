/* Kernels with one planted fault each, and their clean twins, in the simulator:
 *
 *     faults SOURCE_FOLDER [SEEDS [NAME]]
 *
 * The twin must pass under every seed. The fault must be reported under every seed, or where the table says that it
 * depends on the schedule, under one at least; and each report must be what the table expects: kind, device, CTA, role
 * of the warp, source line. */
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "fault_case.h"
#include "plant.h"
#include "sim/seeds.h"

using namespace faults;

namespace {

/* "file.cu:12" of every line that says "here: name". */
class places {
  public:
    explicit places(const std::string &folder) {
        for (const char *file : {"tools.cuh", "copies.cu", "products.cu", "barriers.cu", "memory.cu", "messages.cu"}) {
            std::ifstream lines(folder + "/" + file);
            std::string line;
            for (int number = 1; std::getline(lines, line); number++)
                for (size_t at = 0; (at = line.find("/* here: ", at)) != std::string::npos; at++) {
                    const size_t start = at + 9;
                    lines_[line.substr(start, line.find(" */", start) - start)].insert(std::string(file) + ":" +
                                                                                       std::to_string(number));
                }
        }
    }

    /* The line of the operation, or one that it was called from; a deadlock names those of all who wait. */
    bool named(const std::vector<std::string> &names, const sim::report &r) const {
        const size_t callers = r.kind == sim::fault::deadlock ? 0 : r.message.find("(from ");
        std::string text = r.file + ":" + std::to_string(r.line);
        if (callers != std::string::npos)
            text += " " + r.message.substr(callers);
        for (const std::string &name : names)
            for (const std::string &line : lines_.at(name))
                if (ends_word(text, line))
                    return true;
        return false;
    }

  private:
    /* "a.cu:12" is not in "a.cu:123". */
    static bool ends_word(const std::string &text, const std::string &word) {
        for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at++)
            if (at + word.size() == text.size() || !std::isdigit((unsigned char)text[at + word.size()]))
                return true;
        return false;
    }

    std::map<std::string, std::set<std::string>> lines_;
};

struct device_memory {
    uint8_t *in, *out;
    uint32_t *flags;
};

tensor_map map_of(void *base, tensor_swizzle swizzle) {
    tensor_map_desc desc = {};
    desc.base = base;
    desc.dims = 2;
    desc.element = TENSOR_BF16;
    desc.swizzle = swizzle;
    desc.size[0] = 64;
    desc.size[1] = PLANT_IN_BYTES / 128;
    desc.stride[0] = 128;
    desc.box[0] = desc.box[1] = 64;
    tensor_map map;
    std::string why;
    if (!sim::encode_tensor_map(desc, &map, &why)) {
        std::fprintf(stderr, "a tensor map is refused: %s\n", why.c_str());
        std::exit(1);
    }
    return map;
}

device_memory fill_device(sim::machine &gpus, int device) {
    std::vector<uint16_t> in(PLANT_IN_BYTES / 2);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = i % 3 == 0 ? 0x3f80 : 0x4000; /* 1 and 2 */
    const device_memory m = {(uint8_t *)gpus.allocate(device, PLANT_IN_BYTES),
                             (uint8_t *)gpus.allocate(device, PLANT_OUT_BYTES),
                             (uint32_t *)gpus.allocate(device, PLANT_FLAGS * 4)};
    if (!m.in || !m.out || !m.flags || !gpus.write(m.in, in.data(), PLANT_IN_BYTES) ||
        !gpus.fill(m.out + PLANT_OUT_BYTES / 2, 0, PLANT_OUT_BYTES / 2) || !gpus.fill(m.flags, 0, PLANT_FLAGS * 4)) {
        std::fprintf(stderr, "no memory\n");
        std::exit(1);
    }
    return m;
}

/* The first report, or one without a message when all went well. */
sim::report run(const fault_case &c, bool planted, uint64_t seed, uint64_t *schedule) {
    sim::options options;
    options.seed = seed;
    options.devices = c.devices;
    options.resident = planted && c.resident_planted != 0 ? c.resident_planted : c.ctas;
    sim::machine gpus(options);
    struct sim::launch launch;
    launch.kernel = reinterpret_cast<sim::kernel_function>(dlsym(RTLD_DEFAULT, c.name.c_str()));
    if (launch.kernel == nullptr) {
        std::fprintf(stderr, "no kernel %s\n", c.name.c_str());
        std::exit(1);
    }
    launch.name = c.name;
    launch.parameter_bytes = sizeof(plant);
    launch.grid = c.ctas;
    launch.cluster = c.cluster;
    launch.threads = c.threads;
    launch.shared_bytes = c.shared_bytes;
    for (unsigned warp = 0; warp < c.threads / 32; warp++)
        launch.roles.push_back("warp" + std::to_string(warp));
    std::vector<device_memory> memory;
    for (unsigned device = 0; device < c.devices; device++)
        memory.push_back(fill_device(gpus, (int)device));
    for (unsigned device = 0; device < c.devices; device++) {
        const device_memory &mine = memory[device], &peer = memory[(device + 1) % c.devices];
        plant p = {};
        p.swizzled = map_of(mine.in, TENSOR_SWIZZLE_128B);
        p.plain = map_of(mine.in, TENSOR_SWIZZLE_NONE);
        p.out_swizzled = map_of(mine.out, TENSOR_SWIZZLE_128B);
        p.in = mine.in;
        p.out = mine.out;
        p.flags = mine.flags;
        p.peer_out = peer.out;
        p.peer_flags = peer.flags;
        p.device = device;
        p.planted = planted;
        launch.parameters = &p;
        gpus.launch(gpus.default_stream(device), launch);
    }
    const bool clean = gpus.finish();
    *schedule = gpus.counters().trace;
    return clean ? sim::report() : gpus.reports().front();
}

template <typename type> bool among(const std::vector<type> &allowed, const type &value) {
    return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

/* What of the report is not as expected, or nothing. */
std::string compare(const fault_case &c, const sim::report &r, const places &where) {
    if (!among(c.kinds, r.kind))
        return "the kind is wrong";
    if (!among(c.devices_named, r.device))
        return "the device is wrong";
    if (!among(c.ctas_named, r.cta))
        return "the CTA is wrong";
    if (!c.warps_named.empty() && (!among(c.warps_named, r.warp) || r.role != "warp" + std::to_string(r.warp)))
        return "the warp or its role is wrong";
    if (!where.named(c.places, r) && (r.kind != sim::fault::lifetime || r.line > 0))
        return "the source line is wrong";
    for (const std::string &word : c.says)
        if (r.message.find(word) == std::string::npos)
            return "the message does not say \"" + word + "\"";
    return "";
}

using schedule_set = std::set<std::pair<std::string, uint64_t>>; /* of which kernel */

/* Prints a line when something is wrong. */
bool prove(const fault_case &c, uint64_t seeds, const places &where, schedule_set &schedules) {
    uint64_t found = 0, schedule;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const sim::report clean = run(c, false, seed, &schedule);
        schedules.emplace(c.name, schedule);
        if (!clean.message.empty()) {
            std::printf("FAIL %s: seed %llu: the clean twin: %s\n", c.name.c_str(), (unsigned long long)seed,
                        sim::describe(clean).c_str());
            return false;
        }
        const sim::report r = run(c, true, seed, &schedule);
        schedules.emplace(c.name + " planted", schedule);
        if (r.message.empty())
            continue;
        found++;
        const std::string wrong = compare(c, r, where);
        if (!wrong.empty()) {
            std::printf("FAIL %s: seed %llu: %s: %s\n", c.name.c_str(), (unsigned long long)seed, wrong.c_str(),
                        sim::describe(r).c_str());
            return false;
        }
    }
    if (found < (c.always ? seeds : 1)) {
        std::printf("FAIL %s: reported under %llu of %llu seeds\n", c.name.c_str(), (unsigned long long)found,
                    (unsigned long long)seeds);
        return false;
    }
    return true;
}

} // namespace

int main(int count, char **arguments) {
    if (count < 2) {
        std::fprintf(stderr, "usage: faults SOURCE_FOLDER [SEEDS [NAME]]\n");
        return 2;
    }
    const places where(arguments[1]);
    const uint64_t seeds = argument_or(count, arguments, 2, rig_small() ? 12 : 24);
    schedule_set schedules;
    size_t proved = 0, tried = 0;
    for (const fault_case &c : all_faults())
        if (count <= 3 || c.name == arguments[3]) {
            tried++;
            proved += prove(c, seeds, where, schedules);
        }
    std::printf("%zu of %zu planted faults reported as what they are, %zu schedules tried\n", proved, tried,
                schedules.size());
    return proved == tried && tried > 0 ? 0 : 1;
}
