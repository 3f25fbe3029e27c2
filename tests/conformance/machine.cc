/* One run of a case: buffers with guards around them, the launch, and the comparison. */
#include "machine.h"

#include <cstdio>

namespace conformance {
namespace {

/* Memory of the machine that holds the given bytes, with guard bytes on both sides. */
class guarded_buffer {
  public:
    explicit guarded_buffer(machine &m) : machine_(m) {}
    guarded_buffer(const guarded_buffer &) = delete;
    guarded_buffer &operator=(const guarded_buffer &) = delete;
    ~guarded_buffer() {
        if (start_ != nullptr)
            machine_.release(start_);
    }

    std::string fill(const std::vector<uint8_t> &content) {
        size_ = content.size();
        std::vector<uint8_t> all(size_ + 2 * GUARD, GUARD_BYTE);
        if (size_ > 0)
            std::memcpy(all.data() + GUARD, content.data(), size_);
        std::string wrong = machine_.allocate(all.size(), &start_);
        return wrong.empty() ? machine_.write(start_, all.data(), all.size()) : wrong;
    }

    uint8_t *data() const { return static_cast<uint8_t *>(start_) + GUARD; }

    std::string fetch(std::vector<uint8_t> &content) const {
        std::vector<uint8_t> all(size_ + 2 * GUARD);
        std::string wrong = machine_.read(all.data(), start_, all.size());
        if (!wrong.empty())
            return wrong;
        for (size_t i = 0; i < GUARD; i++)
            if (all[i] != GUARD_BYTE || all[GUARD + size_ + i] != GUARD_BYTE)
                return "bytes beside a buffer were written";
        content.assign(all.begin() + GUARD, all.end() - GUARD);
        return "";
    }

  private:
    enum { GUARD = 1024, GUARD_BYTE = 0xc5 };
    machine &machine_;
    void *start_ = nullptr;
    size_t size_ = 0;
};

std::string compare(const test_case &c, const std::vector<uint8_t> &before, const std::vector<uint8_t> &got) {
    size_t differences = 0, first = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const bool written = c.after.written[i] != 0;
        if (!written && c.judge)
            continue;
        if (got[i] != (written ? c.after.bytes[i] : before[i]) && differences++ == 0)
            first = i;
    }
    if (differences > 0) {
        const size_t word = first / 4 * 4, width = got.size() - word < 4 ? got.size() - word : 4;
        uint32_t is = 0, expected = 0;
        std::memcpy(&is, &got[word], width);
        std::memcpy(&expected, c.after.written[first] ? &c.after.bytes[word] : &before[word], width);
        char text[160];
        std::snprintf(text, sizeof text, "%zu of %zu bytes differ, first in the word at %zu: %08x, expected %08x%s",
                      differences, got.size(), word, is, expected, c.after.written[first] ? "" : " (untouched)");
        return text;
    }
    return c.judge ? c.judge(got) : "";
}

} // namespace

std::string run_case(machine &m, const test_case &c, uint8_t poison) {
    guarded_buffer in(m), table(m), out(m), late(m);
    std::vector<uint8_t> table_bytes(c.table.size() * sizeof c.table[0]);
    if (!c.table.empty())
        std::memcpy(table_bytes.data(), c.table.data(), table_bytes.size());
    std::vector<uint8_t> before = c.before;
    if (before.empty())
        before.assign(c.after.bytes.size(), poison);

    const struct {
        guarded_buffer &buffer;
        const std::vector<uint8_t> content;
    } fills[] = {{in, c.in}, {table, table_bytes}, {out, before}, {late, std::vector<uint8_t>(4)}};
    for (const auto &f : fills) {
        std::string wrong = f.buffer.fill(f.content);
        if (!wrong.empty())
            return wrong;
    }

    parameters p = {};
    p.in = in.data();
    p.table = reinterpret_cast<const uint32_t *>(table.data());
    p.out = out.data();
    p.late = reinterpret_cast<uint32_t *>(late.data());
    std::memcpy(p.number, c.number, sizeof c.number);
    p.number[PARAMETER_NUMBERS - 1] = c.threads;
    for (size_t i = 0; i < c.maps.size(); i++) {
        tensor_map_desc desc = c.maps[i].desc;
        desc.base = (c.maps[i].buffer == IN ? in.data() : out.data()) + c.maps[i].offset;
        std::string wrong = m.encode(desc, &p.map[i]);
        if (!wrong.empty())
            return wrong;
    }

    std::string wrong = m.launch(c, p);
    if (!wrong.empty())
        return wrong;
    std::vector<uint8_t> late_bytes, in_bytes, got;
    if (!(wrong = late.fetch(late_bytes)).empty() || !(wrong = in.fetch(in_bytes)).empty() ||
        !(wrong = out.fetch(got)).empty())
        return wrong;
    if (read<uint32_t>(late_bytes, 0) != 0)
        return "a wait did not end in the kernel";
    if (in_bytes != c.in)
        return "the input was changed";
    return compare(c, before, got);
}

} // namespace conformance
