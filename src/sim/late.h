/* Ordinary stores to another device's memory, on their way. */
#ifndef SIM_LATE_H
#define SIM_LATE_H

#include <cstddef>
#include <deque>

#include "sim/model.h"

namespace sim {

/* In the order they were made. They arrive at any later time, and before anything that the machine promises to come
 * after them: a system-scope release by their device, its own access to the same bytes, the end of their grid. */
class late_stores {
  public:
    void add(machine::impl &m, void *to, const void *value, size_t bytes);
    void arrive(machine::impl &m, size_t count);
    void arrive_all(machine::impl &m) { arrive(m, queue.size()); }
    /* Those to these bytes, and what was stored before them. */
    void arrive_at(machine::impl &m, const void *address, size_t bytes);
    size_t size() const { return queue.size(); }

    bool listed = false; /* as work to be done */

  private:
    struct one {
        char *to;
        char value[16];
        size_t bytes;
    };
    std::deque<one> queue;
};

} // namespace sim

#endif
