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

/* Whose records a role's are. */
struct teller {
    mmoe_trace_role role;
    int32_t number; /* of the first of them */
};

static struct teller teller_of_rows(int role) {
    switch (role) {
    case TRACE_LOADER:
        return (struct teller){MMOE_TRACE_LOADER, 0};
    case TRACE_GROUPER:
        return (struct teller){MMOE_TRACE_GROUPER, 0};
    case TRACE_FETCHER:
        return (struct teller){MMOE_TRACE_FETCHER, 0};
    case TRACE_FLIGHTS:
        return (struct teller){MMOE_TRACE_FLIGHT, 0};
    case TRACE_STORER:
        return (struct teller){MMOE_TRACE_STORER, 0};
    default:
        return (struct teller){MMOE_TRACE_CONSUMER, role - TRACE_CONSUMER};
    }
}

/* Gradients of weights: a loader, summers, consumers. */
static struct teller teller_of_weights(int role) {
    if (role == TRACE_LOADER) {
        return (struct teller){MMOE_TRACE_LOADER, 0};
    }
    return role < TRACE_CONSUMER ? (struct teller){MMOE_TRACE_SUMMER, role - 1}
                                 : (struct teller){MMOE_TRACE_CONSUMER, role - TRACE_CONSUMER};
}

static struct teller teller_of(int part, int role) {
    switch (part) {
    case MM_TRACE_ROWS:
        return teller_of_rows(role);
    case MM_TRACE_END:
        return (struct teller){MMOE_TRACE_FINISHER, role};
    default:
        return teller_of_weights(role);
    }
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

/* Adds the events of a CTA to `made`. */
static void add_events(int part, const struct trace_cta *cta, const struct trace_record *records, uint32_t first_tile,
                       uint32_t room, mmoe_trace *made, mmoe_trace_event *events) {
    const struct cta_clock clock = clock_of(cta);
    for (int role = 0; role < TRACE_ROLES; role++) {
        const struct teller teller = teller_of(part, role);
        const uint32_t kept = mm_trace_kept(cta, role, room);
        const uint32_t placed = is_placeable(cta) ? kept : 0;
        for (uint32_t i = 0; i < placed; i++) {
            mmoe_trace_event *event = &events[made->count++];
            *event = event_of(&records[i], &clock);
            event->tile += (int32_t)first_tile;
            event->multiprocessor = (int32_t)cta->multiprocessor;
            event->role = teller.role;
            event->number = teller.number + (teller.role == MMOE_TRACE_FLIGHT ? (int32_t)(i % CARRIES) : 0);
        }
        made->lost += cta->records[role] - placed;
        records += kept;
    }
}

static uint32_t kept_of(const struct trace_cta *cta, uint32_t room) {
    uint32_t kept = 0;
    for (int role = 0; role < TRACE_ROLES; role++) {
        kept += mm_trace_kept(cta, role, room);
    }
    return kept;
}

void mm_trace_events(const struct mm_trace_records *parts, int part_count, unsigned cta_count, uint32_t room,
                     mmoe_trace *made, mmoe_trace_event *events) {
    for (int part = 0; part < part_count; part++) {
        const struct trace_record *records = parts[part].records;
        for (unsigned c = 0; c < cta_count; c++) {
            const struct trace_cta *cta = &parts[part].ctas[c];
            add_events(part, cta, records, parts[part].first_tile, room, made, events);
            records += kept_of(cta, room);
        }
    }
    qsort(events, (size_t)made->count, sizeof *events, compare_events);
    summarize(made);
}
