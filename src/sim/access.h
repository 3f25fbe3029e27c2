/* Checked accesses: bounds and alignment, then order. */
#ifndef SIM_ACCESS_H
#define SIM_ACCESS_H

#include "sim/order.h"

namespace sim {

enum class access { READ, WRITE, MODIFY };

/* Where the bytes lie in the CTA's shared memory. */
size_t shared_offset(thread &t, const cta &c, uint32_t address, size_t bytes, size_t alignment, const char *what);
/* The allocation that they lie in; *offset: where. */
allocation &global_at(thread &t, const void *address, size_t bytes, size_t alignment, const char *what, size_t *offset);

void check_shared(thread &t, cta &c, size_t offset, size_t bytes, access kind, const observer &by, const char *what);
void check_global(thread &t, allocation &a, size_t offset, size_t bytes, access kind, const observer &by,
                  const char *what);

/* The thread's device accesses these bytes: what it has stored there before has arrived. */
void see_late_stores(thread &t, const void *address, size_t bytes);

} // namespace sim

#endif
