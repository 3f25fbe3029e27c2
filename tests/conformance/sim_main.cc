/* The suite in the simulator, each case under several seeds:
 *
 *     conformance_sim [SEEDS [NAME]]
 *
 * NAME: only cases whose names contain it. Ends with a table and the number of schedules that were tried. */
#include <set>

#include <dlfcn.h>

#include "machine.h"
#include "report.h"
#include "sim/seeds.h"
#include "sim/sim.h"

using namespace conformance;

namespace {

/* One simulated GPU, with one seed, for one run of a case. */
class sim_machine : public machine {
  public:
    explicit sim_machine(const sim::options &options) : gpus_(options) {}

    std::string allocate(size_t bytes, void **address) override {
        *address = gpus_.allocate(0, bytes);
        return *address != nullptr ? "" : "no memory";
    }
    void release(void *address) override { gpus_.free(address); }
    std::string write(void *to, const void *from, size_t bytes) override {
        return gpus_.write(to, from, bytes) ? "" : "a write by the host is out of bounds";
    }
    std::string read(void *to, const void *from, size_t bytes) override {
        return gpus_.read(to, from, bytes) ? "" : "a read by the host is out of bounds";
    }
    std::string encode(const tensor_map_desc &desc, tensor_map *map) override {
        std::string why;
        return sim::encode_tensor_map(desc, map, &why) ? "" : "the tensor map is refused: " + why;
    }
    std::string launch(const test_case &c, const parameters &p) override;

    uint64_t schedule() const { return gpus_.counters().trace; }

  private:
    sim::machine gpus_;
};

/* MM_KERNEL defines in this program the kernel, and under another name the most threads that it takes. */
std::string sim_machine::launch(const test_case &c, const parameters &p) {
    struct sim::launch launch;
    launch.kernel = reinterpret_cast<sim::kernel_function>(dlsym(RTLD_DEFAULT, c.kernel.c_str()));
    const auto threads = static_cast<const unsigned *>(dlsym(RTLD_DEFAULT, (c.kernel + "_threads").c_str()));
    if (launch.kernel == nullptr || threads == nullptr)
        return "no kernel " + c.kernel;
    if (c.threads > *threads)
        return "more threads than the kernel is made for";
    launch.name = c.kernel;
    launch.parameters = &p;
    launch.parameter_bytes = sizeof p;
    launch.grid = c.ctas;
    launch.cluster = c.cluster;
    launch.threads = c.threads;
    launch.shared_bytes = c.shared_bytes;
    for (uint32_t i = 0; i < c.launches; i++)
        gpus_.launch(gpus_.default_stream(0), launch);
    return gpus_.finish() ? "" : sim::describe(gpus_.reports().front());
}

sim::options options_for(const test_case &c, uint64_t seed) {
    sim::options o;
    o.seed = seed;
    if (c.together)
        o.multiprocessors = o.resident = c.ctas;
    return o;
}

} // namespace

int main(int count, char **arguments) {
    const uint64_t seeds = argument_or(count, arguments, 1, rig_small() ? 2 : 16);
    const std::string wanted = count > 2 ? arguments[2] : "";
    const case_list cases = all_cases();
    std::vector<outcome> outcomes(cases.size());
    std::set<std::pair<size_t, uint64_t>> schedules; /* of which case */
    bool right = seeds > 0;
    for (size_t i = 0; i < cases.size(); i++) {
        if (cases[i].name.find(wanted) == std::string::npos)
            continue;
        outcomes[i].result = verdict::passed;
        for (uint64_t seed = 1; seed <= seeds && outcomes[i].result == verdict::passed; seed++) {
            sim_machine gpu(options_for(cases[i], seed));
            const std::string wrong = run_case(gpu, cases[i], POISONS[seed % 2]);
            schedules.emplace(i, gpu.schedule());
            if (!wrong.empty())
                outcomes[i] = {verdict::failed, "seed " + std::to_string(seed) + ": " + wrong};
        }
        right = right && outcomes[i].result == verdict::passed;
    }
    print_outcomes(cases, outcomes);
    std::printf("%zu schedules tried\n", schedules.size());
    return right ? 0 : 1;
}
