/* Source lines of code addresses, from the program's debug information. */
#ifndef SIM_WHERE_H
#define SIM_WHERE_H

#include <string>
#include <vector>

namespace sim {

struct source_line {
    std::string file; /* its last two parts: "kernels/down.cu" */
    int line = 0;
    bool operator==(const source_line &other) const { return line == other.line && file == other.file; }
};

/* The line of the call that returns to this address, then the lines that it was inlined into, without those of the isa
 * functions themselves. Empty where there is no debug information, or no addr2line to read it. Remembered from then on,
 * for all machines of the process. */
const std::vector<source_line> &source_lines(const void *return_address);

/* "kernels/down.cu:12, from kernels/down.cu:80"; empty like `source_lines`. */
std::string source_text(const void *return_address);

/* Whether both addresses are of one call in the source, which the compiler may have made copies of. Also where that
 * can't be told. */
bool same_source(const void *return_address, const void *other);

} // namespace sim

#endif
