/* Faults of checked accesses, in words. */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

#include "sim/machine.h"

namespace sim {

/* Which bytes: "shared memory at +0x400" or "device 1's memory at +16 of 4096 bytes". */
std::string place_text(const cta &c, size_t offset);
std::string place_text(const allocation &a, size_t offset);

/* `t` did `what` ("a load", "the copy's write") there, and that clashes. */
[[noreturn]] void fail_clash(thread &t, const char *what, const cta &c, const clash &found);
[[noreturn]] void fail_clash(thread &t, const char *what, const allocation &a, const clash &found);

} // namespace sim

#endif
