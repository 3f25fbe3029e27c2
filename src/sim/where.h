/* Source lines of code addresses, from the program's debug information. */
#ifndef SIM_WHERE_H
#define SIM_WHERE_H

#include <map>
#include <string>
#include <vector>

namespace sim {

struct source_line {
    std::string file; /* its last two parts: "kernels/down.cu" */
    int line = 0;
};

/* Remembers what it has looked up. */
class source_map {
  public:
    /* The line of the call that returns to this address, then the lines that it was inlined into, without those of the
     * isa functions themselves. Empty where there is no debug information, or no addr2line to read it. */
    const std::vector<source_line> &lines(const void *return_address);
    /* "down.cu:12, from down.cu:80"; empty like `lines`. */
    std::string text(const void *return_address);

  private:
    std::map<const void *, std::vector<source_line>> known;
};

} // namespace sim

#endif
