/* Faults of checked accesses, in words. */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

#include "sim/machine.h"

namespace sim {

/* `t` did `what` ("a load", "the copy's write") there, and that clashes. */
[[noreturn]] void fail_clash(thread &t, const char *what, const cta &c, const clash &found);
[[noreturn]] void fail_clash(thread &t, const char *what, const allocation &a, const clash &found);

} // namespace sim

#endif
