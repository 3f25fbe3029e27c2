/* Asks addr2line, which comes with the compiler; only when there is a fault to report. */
#include "sim/where.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace sim {

namespace {

/* The file that holds the code and the address in it, as the file counts. */
bool locate(const void *address, std::string *file, uintptr_t *offset) {
    Dl_info info;
    struct link_map *map = nullptr;
    if (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == nullptr)
        return false;
    *file = map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe";
    *offset = (uintptr_t)address - map->l_addr;
    return true;
}

std::string shell_quoted(const std::string &text) {
    std::string quoted = "'";
    for (char c : text)
        quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

std::string last_parts(const std::string &path) {
    const size_t name = path.rfind('/');
    if (name == std::string::npos || name == 0)
        return path;
    const size_t folder = path.rfind('/', name - 1);
    return folder == std::string::npos ? path : path.substr(folder + 1);
}

bool of_the_isa(const std::string &file) {
    return file == "sim/isa_sim.h" || file == "kernels/isa.cuh";
}

std::vector<source_line> look_up(const void *return_address) {
    std::vector<source_line> lines;
    std::string file;
    uintptr_t offset = 0;
    if (return_address == nullptr || !locate(return_address, &file, &offset))
        return lines;
    char self[32];
    if (file == "/proc/self/exe") {
        /* addr2line would open its own. */
        snprintf(self, sizeof self, "/proc/%ld/exe", (long)getpid());
        file = self;
    }
    char address[32];
    snprintf(address, sizeof address, " 0x%lx", (unsigned long)(offset - 1));
    const std::string command = "addr2line -i -e " + shell_quoted(file) + address + " 2>/dev/null";
    FILE *out = popen(command.c_str(), "r");
    if (out == nullptr)
        return lines;
    char text[4096];
    while (fgets(text, sizeof text, out) != nullptr) {
        std::string said = text;
        const size_t colon = said.rfind(':');
        if (colon == std::string::npos || said[0] == '?')
            continue;
        const int line = atoi(said.c_str() + colon + 1);
        const std::string name = last_parts(said.substr(0, colon));
        if (line > 0 && !of_the_isa(name))
            lines.push_back({name, line});
    }
    pclose(out);
    return lines;
}

} // namespace

const std::vector<source_line> &source_lines(const void *return_address) {
    static std::mutex mutex;
    static std::map<const void *, std::vector<source_line>> known;
    std::lock_guard<std::mutex> held(mutex);
    const auto at = known.find(return_address);
    return at != known.end() ? at->second : known[return_address] = look_up(return_address);
}

std::string source_text(const void *return_address) {
    std::string text;
    for (const source_line &l : source_lines(return_address))
        text += (text.empty() ? "" : ", from ") + l.file + ":" + std::to_string(l.line);
    return text;
}

bool same_source(const void *return_address, const void *other) {
    if (return_address == other)
        return true;
    const std::vector<source_line> &one = source_lines(return_address), &two = source_lines(other);
    return one.empty() || two.empty() || one == two;
}

} // namespace sim
