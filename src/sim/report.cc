/* Reports: who, where, what, who else. */
#include "sim/report.h"

#include <cstdarg>
#include <cstdio>

#include "sim/where.h"

namespace sim {

namespace {

std::string vformat_text(const char *format, va_list arguments) {
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    return text;
}

const char *wait_text(wait_for w) {
    switch (w) {
    case wait_for::NOTHING:
        return "runs";
    case wait_for::LANES:
        return "waits for the warp's other lanes";
    case wait_for::NAMED_BARRIER:
        return "waits at a named barrier";
    case wait_for::CLUSTER:
        return "waits in cluster_sync";
    case wait_for::MBARRIER:
        return "waits for an mbarrier";
    case wait_for::FLAG:
        return "polls memory";
    case wait_for::SLEEP:
        return "sleeps";
    case wait_for::BULK:
        return "waits for bulk groups";
    case wait_for::WGMMA:
        return "waits for wgmma groups";
    case wait_for::REGISTERS:
        return "waits for registers";
    case wait_for::GRID:
        return "waits for the grid before";
    }
    return "";
}

std::string wait_details(const thread &t) {
    const warp &w = *t.of;
    if (t.waits == wait_for::MBARRIER && t.bar != nullptr)
        return format_text(" at +0x%x, phase %u (%u of %u arrivals and %lld bytes are missing)", t.bar->offset,
                           t.bar_phase, t.bar->missing, t.bar->count, (long long)t.bar->bytes);
    if (t.waits == wait_for::FLAG && t.polls.count > 0)
        return format_text(" (%p holds %u)", (const void *)t.polls.seen[t.polls.count - 1].address,
                           t.polls.seen[t.polls.count - 1].value);
    if (t.waits == wait_for::LANES)
        return format_text(" at %s (lanes 0x%08x came)", aligned_name(w.gathers), w.gathered);
    if (t.waits == wait_for::NAMED_BARRIER) {
        for (unsigned id = 0; id < w.of->barriers.size(); id++) {
            const named_barrier &b = w.of->barriers[id];
            for (const warp *waiting : b.waits)
                if (waiting == &w)
                    return format_text(" %u (%u of %u threads came)", id, b.arrived, b.expected);
        }
    }
    return "";
}

/* One line for all lanes of a warp that wait in the same way at the same place. */
std::string warp_waits(const warp &w) {
    std::string text;
    uint32_t said = w.ended;
    for (const thread &t : w.lanes) {
        if ((said >> t.lane & 1) != 0)
            continue;
        unsigned lanes = 0;
        for (const thread &other : w.lanes) {
            if ((said >> other.lane & 1) == 0 && other.waits == t.waits && other.where == t.where &&
                other.bar == t.bar) {
                said |= 1u << other.lane;
                lanes++;
            }
        }
        const std::string source = source_text(t.where);
        text += format_text("\n    device %u %s: lane %u%s %s%s%s%s", w.of->of->device, warp_name(w).c_str(), t.lane,
                            lanes > 1 ? format_text(" and %u more", lanes - 1).c_str() : "", wait_text(t.waits),
                            wait_details(t).c_str(), source.empty() ? "" : ", ", source.c_str());
    }
    return text;
}

} // namespace

const char *fault_name(fault kind) {
    static const char *const names[] = {"deadlock",   "step limit", "divergence", "race",        "uninitialised read",
                                        "proxy",      "bounds",     "alignment",  "mbarrier",    "named barrier",
                                        "tensor map", "descriptor", "swizzle",    "accumulator", "lifetime",
                                        "registers",  "launch"};
    return names[(int)kind];
}

const char *aligned_name(aligned what) {
    static const char *const names[] = {
        "nothing",      "warp_index",   "warp_sync",      "a shuffle",    "warp_ballot",    "elect_one",
        "cta_sync",     "barrier_sync", "barrier_arrive", "cluster_sync", "registers_give", "registers_take",
        "matrix_store", "matrix_load",  "wgmma_bf16",     "wgmma_fence",  "wgmma_commit",   "wgmma_wait"};
    return names[(int)what];
}

std::string gathering_text(const warp &w) {
    const std::string source = source_text(w.gathers_at);
    return aligned_name(w.gathers) + (source.empty() ? "" : ", " + source);
}

std::string describe(const report &r) {
    std::string text = fault_name(r.kind);
    if (r.device >= 0)
        text += ": device " + std::to_string(r.device);
    if (r.cta >= 0)
        text += " CTA " + std::to_string(r.cta);
    if (r.warp >= 0)
        text += " warp " + std::to_string(r.warp);
    if (!r.role.empty())
        text += " (" + r.role + ")";
    if (r.lane >= 0)
        text += " lane " + std::to_string(r.lane);
    if (!r.file.empty())
        text += " at " + r.file + ":" + std::to_string(r.line);
    return text + ": " + r.message;
}

std::string format_text(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = vformat_text(format, arguments);
    va_end(arguments);
    return text;
}

static std::string role_of(const warp &w) {
    const std::vector<std::string> &roles = w.of->of->how.roles;
    return w.index < roles.size() ? roles[w.index] : "";
}

std::string warp_name(const warp &w) {
    const std::string role = role_of(w);
    return format_text("CTA %u warp %u%s%s%s", w.of->index, w.index, role.empty() ? "" : " (", role.c_str(),
                       role.empty() ? "" : ")");
}

const void *place_at(const actor_info &info, uint32_t clock) {
    const void *where = nullptr;
    uint32_t best = 0;
    for (const auto &h : info.history) {
        if (h.where != nullptr && h.clock <= clock && h.clock >= best) {
            best = h.clock;
            where = h.where;
        }
    }
    return where;
}

std::string actor_name(machine::impl &m, const epoch &e) {
    if (!e.has(ASYNC) && e.actor == 1)
        return "the host";
    const actor_info &info = e.has(ASYNC) ? m.async_infos[e.actor] : m.warp_infos[e.actor];
    std::string text = info.name;
    if (!e.has(ASYNC))
        text += " lane " + std::to_string(e.lane);
    const std::string source = source_text(place_at(info, e.clock));
    if (!source.empty())
        text += (e.has(ASYNC) ? ", issued at " : ", after ") + source;
    return text;
}

void machine::impl::record(const thread *t, fault kind, std::string message, const void *where) {
    report r;
    r.kind = kind;
    r.message = std::move(message);
    if (t != nullptr) {
        r.device = (int)t->of->of->of->device;
        r.cta = (int)t->of->of->index;
        r.warp = (int)t->of->index;
        r.lane = t->lane;
        r.role = role_of(*t->of);
        const std::vector<source_line> &lines = source_lines(where != nullptr ? where : t->where);
        if (!lines.empty()) {
            r.file = lines[0].file;
            r.line = lines[0].line;
        }
        for (size_t i = 1; i < lines.size(); i++)
            r.message += (i == 1 ? " (from " : ", ") + lines[i].file + ":" + std::to_string(lines[i].line) +
                         (i + 1 == lines.size() ? ")" : "");
    }
    reports.push_back(std::move(r));
    stopped = true;
}

/* The thread's stack is given up, so nothing on it may own memory. */
void give_up(thread &t) {
    fiber_switch(t.stack, t.of->home->main_stack);
    __builtin_unreachable();
}

void fail(thread &t, fault kind, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    t.of->home->record(&t, kind, vformat_text(format, arguments));
    va_end(arguments);
    give_up(t);
}

static std::string place_text(const cta &c, size_t offset) {
    return format_text("shared memory of CTA %u at +0x%zx", c.index, offset);
}

static std::string place_text(const allocation &a, size_t offset) {
    return format_text("%s memory at %p, +%zu in an allocation of %zu bytes",
                       a.device < 0 ? "host" : ("device " + std::to_string(a.device) + "'s").c_str(),
                       (void *)(a.data + offset), offset, a.bytes);
}

static void record_clash(thread &t, const char *what, const std::string &place, const clash &found) {
    machine::impl &m = *t.of->home;
    const std::string access = std::string(what) + " of " + place;
    const std::string other = found.kind == conflict::uninitialised ? "" : actor_name(m, found.earlier);
    const std::string earlier = (found.earlier_writes ? "a write by " : "a read by ") + other;
    switch (found.kind) {
    case conflict::uninitialised:
        return m.record(&t, fault::uninitialised, access + ", which nobody has written");
    case conflict::proxy:
        return m.record(&t, fault::proxy, access + " needs a proxy fence after " + earlier);
    case conflict::over_mbarrier:
        return m.record(&t, fault::mbarrier, access + ", where an mbarrier lies");
    default:
        return m.record(&t, fault::race, access + " is not ordered after " + earlier);
    }
}

void fail_clash(thread &t, const char *what, const cta &c, const clash &found) {
    record_clash(t, what, place_text(c, found.offset), found);
    give_up(t);
}

void fail_clash(thread &t, const char *what, const allocation &a, const clash &found) {
    record_clash(t, what, place_text(a, found.offset), found);
    give_up(t);
}

/* At most this many warps are told of in a deadlock. */
static const unsigned DEADLOCK_WARPS = 24;

void machine::impl::deadlock() {
    std::string text = "nobody can progress:";
    unsigned told = 0, left = 0;
    for (const std::unique_ptr<cta> &c : ctas) {
        for (const std::unique_ptr<warp> &w : c->warps) {
            if (w->ended == ~0u)
                continue;
            if (told < DEADLOCK_WARPS) {
                text += warp_waits(*w);
                told++;
            } else {
                left++;
            }
        }
    }
    if (left > 0)
        text += format_text("\n    and %u more warps", left);
    if (told == 0)
        text += " streams wait for events that nothing will record";
    record(nullptr, fault::deadlock, std::move(text));
}

} // namespace sim
