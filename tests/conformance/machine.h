/* What the suite needs of a machine, be it a GPU or the simulator, and the run of a case on one. */
#ifndef TESTS_CONFORMANCE_MACHINE_H
#define TESTS_CONFORMANCE_MACHINE_H

#include "case.h"

namespace conformance {

/* Functions that can fail return what went wrong, or nothing. */
class machine {
  public:
    virtual ~machine() = default;
    virtual std::string allocate(size_t bytes, void **address) = 0; /* 256-byte aligned */
    virtual void release(void *address) = 0;
    virtual std::string write(void *to, const void *from, size_t bytes) = 0;
    virtual std::string read(void *to, const void *from, size_t bytes) = 0;
    virtual std::string encode(const tensor_map_desc &desc, tensor_map *map) = 0;
    /* Runs the case's kernel to its end. */
    virtual std::string launch(const test_case &c, const parameters &p) = 0;
};

/* The output is full of `poison` before, where the case does not say what it holds. */
std::string run_case(machine &m, const test_case &c, uint8_t poison);

/* Bytes that read as NaN in fp32 and bf16, and bytes that read as a large finite value. */
const uint8_t POISONS[] = {0xff, 0x4b};

} // namespace conformance

#endif
