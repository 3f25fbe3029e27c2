/* A GPU for the suite of tests/conformance, on the library's own way to the driver. */
#ifndef TESTS_GPU_CONFORMANCE_GPU_MACHINE_H
#define TESTS_GPU_CONFORMANCE_GPU_MACHINE_H

#include <string>
#include <vector>

#include "../../conformance/machine.h"

extern "C" {
#include "cuda/gpu.h"
}

namespace conformance {

class gpu_machine : public machine {
  public:
    ~gpu_machine() override;

    /* Opens the first suitable GPU and loads the files of kernels. */
    std::string open(const std::vector<std::string> &cubins);
    std::string describe() const;

    std::string allocate(size_t bytes, void **address) override;
    void release(void *address) override;
    std::string write(void *to, const void *from, size_t bytes) override;
    std::string read(void *to, const void *from, size_t bytes) override;
    std::string encode(const tensor_map_desc &desc, tensor_map *map) override;
    std::string launch(const test_case &c, const parameters &p) override;

    /* false after a fault that the driver does not forget. */
    bool usable();

  private:
    std::string load(const std::string &cubin);

    mm_gpu gpu_ = {};
    std::vector<mm_cu_module> modules_;
};

} // namespace conformance

#endif
