/* From records of a traced kernel, in cycles of a multiprocessor, to events in nanoseconds; see trace.h. */
#include <stdlib.h>

#include "cuda/trace.h"
#include "kernels/fused_shape.h"

_Static_assert((int)TRACE_SUM == (int)MMOE_TRACE_SUM && (int)TRACE_PULL == (int)MMOE_TRACE_PULL &&
                   TRACE_KINDS == MMOE_TRACE_SUM + 1,
               "kinds differ");

/* How a CTA's cycles lie in the global time. */
struct cta_clock {
    int64_t ns;      /* at `cycles` */
    uint32_t cycles; /* when the consumers began; the other warps begin at about the same time */
    double rate;     /* nanoseconds of a cycle */
};

#define LONGEST_NS INT64_C(2000000000) /* then cycles of 32 bits begin again */
#define EARLIEST (UINT32_C(1) << 27)   /* cycles before the consumers began */

static bool is_placeable(const struct trace_cta *cta) {
    return (int64_t)(cta->ns[1] - cta->ns[0]) < LONGEST_NS;
}

static struct cta_clock clock_of(const struct trace_cta *cta) {
    const uint32_t cycles = cta->cycles[1] - cta->cycles[0];
    const double ns = (double)(cta->ns[1] - cta->ns[0]);
    return (struct cta_clock){(int64_t)cta->ns[0], cta->cycles[0], cycles > 0 ? ns / cycles : 1};
}

static int64_t ns_at(const struct cta_clock *clock, uint32_t cycles) {
    const int64_t since = (int64_t)(uint32_t)(cycles - clock->cycles + EARLIEST) - EARLIEST;
    return clock->ns + (int64_t)((double)since * clock->rate);
}

static mmoe_trace_role role_of(int role) {
    switch (role) {
    case TRACE_LOADER:
        return MMOE_TRACE_LOADER;
    case TRACE_FETCHER:
        return MMOE_TRACE_FETCHER;
    case TRACE_FLIGHTS:
        return MMOE_TRACE_FLIGHT;
    case TRACE_STORER:
        return MMOE_TRACE_STORER;
    default:
        return MMOE_TRACE_CONSUMER;
    }
}

/* Of record `index` of a role. */
static int32_t number_of(int role, uint32_t index) {
    if (role == TRACE_FLIGHTS) {
        return (int32_t)(index % CARRIES);
    }
    return role >= TRACE_CONSUMER ? role - TRACE_CONSUMER : 0;
}

static mmoe_trace_event event_of(const struct trace_record *record, const struct cta_clock *clock) {
    return (mmoe_trace_event){
        .begin_ns = ns_at(clock, record->begin),
        .end_ns = ns_at(clock, record->end),
        .waited_ns = (int64_t)((double)record->waited * clock->rate),
        .kind = (mmoe_trace_kind)record->kind,
        .block = (int32_t)record->block,
        .tile = (int32_t)record->tile,
        .token = (int32_t)record->token,
        .rows = (int32_t)record->rows,
        .peer_rows = (int32_t)record->peer_rows,
        .bytes = (int32_t)record->bytes,
        .ranks = record->ranks_low | (uint64_t)record->ranks_high << 32,
    };
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int compare_events(const void *one, const void *other) {
    const mmoe_trace_event *a = one, *b = other;
    const int differences[] = {
        compare(a->multiprocessor, b->multiprocessor),
        compare(a->role, b->role),
        compare(a->number, b->number),
        compare(a->begin_ns, b->begin_ns),
        compare(a->end_ns, b->end_ns),
    };
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        if (differences[i] != 0) {
            return differences[i];
        }
    }
    return 0;
}

/* When it all began and ended, and where. */
static void summarize(mmoe_trace *made) {
    for (int64_t i = 0; i < made->count; i++) {
        const mmoe_trace_event *event = &made->events[i];
        made->begin_ns = i == 0 || event->begin_ns < made->begin_ns ? event->begin_ns : made->begin_ns;
        made->end_ns = i == 0 || event->end_ns > made->end_ns ? event->end_ns : made->end_ns;
        made->multiprocessors += i == 0 || event->multiprocessor != event[-1].multiprocessor;
    }
}

void mm_trace_events(const struct trace_cta *ctas, unsigned cta_count, const struct trace_record *records,
                     uint32_t room, mmoe_trace *made, mmoe_trace_event *events) {
    made->count = 0;
    made->lost = 0;
    for (const struct trace_cta *cta = ctas; cta < ctas + cta_count; cta++) {
        const struct cta_clock clock = clock_of(cta);
        for (int role = 0; role < TRACE_ROLES; role++) {
            const uint32_t kept = mm_trace_kept(cta, role, room);
            const uint32_t placed = is_placeable(cta) ? kept : 0;
            for (uint32_t i = 0; i < placed; i++) {
                mmoe_trace_event *event = &events[made->count++];
                *event = event_of(&records[i], &clock);
                event->multiprocessor = (int32_t)cta->multiprocessor;
                event->role = role_of(role);
                event->number = number_of(role, i);
            }
            made->lost += cta->records[role] - placed;
            records += kept;
        }
    }
    qsort(events, (size_t)made->count, sizeof *events, compare_events);
    summarize(made);
}
