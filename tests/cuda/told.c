/* Checks of traces; see told.h. */
#include "told.h"

#include <stdlib.h>

enum { PIECE_BYTES = 4096, HALVES = 2 };

/* ---- Times ---- */

static bool same_track(const mmoe_trace_event *a, const mmoe_trace_event *b) {
    return a->multiprocessor == b->multiprocessor && a->role == b->role && a->number == b->number;
}

static bool in_order(const mmoe_trace_event *a, const mmoe_trace_event *b) {
    if (same_track(a, b))
        return a->end_ns <= b->begin_ns;
    if (a->multiprocessor != b->multiprocessor)
        return a->multiprocessor < b->multiprocessor;
    return a->role != b->role ? a->role < b->role : a->number < b->number;
}

bool told_times(struct rig_rank *rank, const mmoe_trace *trace) {
    for (int64_t i = 0; i < trace->count; i++) {
        const mmoe_trace_event *event = &trace->events[i];
        RIG_TRY(rank,
                event->begin_ns <= event->end_ns && event->begin_ns >= trace->begin_ns &&
                    event->end_ns <= trace->end_ns && event->waited_ns >= 0 &&
                    event->waited_ns <= event->end_ns - event->begin_ns + 1,
                "times of a %s", mmoe_trace_kind_name(event->kind));
        RIG_TRY(rank, i == 0 || in_order(event - 1, event), "a %s after a %s of the same", /* overlap, or disorder */
                mmoe_trace_kind_name(event->kind), mmoe_trace_kind_name(event[-1].kind));
    }
    return true;
}

/* ---- Tasks ---- */

/* Of events of tasks by one warp: each of another place, inside of [count, tiles]. How many; -1: not so. */
static int64_t count_places(const struct told *told, mmoe_trace_kind kind, int32_t number, int64_t count, int64_t tiles,
                            const int32_t *wanted) {
    char *seen = calloc((size_t)(count * tiles) + 1, 1);
    int64_t found = 0;
    bool good = true;
    for (int64_t i = 0; i < told->trace->count && good; i++) {
        const mmoe_trace_event *event = &told->trace->events[i];
        if (event->kind != kind || event->number != number || event->role == MMOE_TRACE_GROUPER)
            continue;
        good = event->block >= 0 && event->block < count && event->tile >= 0 && event->tile < tiles &&
               (wanted == NULL || wanted[event->block] > 0) && !seen[event->block * tiles + event->tile]++;
        found++;
    }
    free(seen);
    return good ? found : -1;
}

static bool is_by_halves(mmoe_trace_kind kind) {
    return kind >= MMOE_TRACE_MULTIPLY_GATE_UP && kind <= MMOE_TRACE_DIFFERENTIATE;
}

/* `wanted`: only where it is not 0; NULL: everywhere. */
static bool tell_places(struct rig_rank *rank, const struct told *told, mmoe_trace_kind kind, int64_t count,
                        int64_t tiles, const int32_t *wanted) {
    int64_t expected = 0;
    for (int64_t place = 0; place < count; place++)
        expected += wanted == NULL || wanted[place] > 0 ? tiles : 0;
    for (int half = 0; half < (is_by_halves(kind) ? HALVES : 1); half++) {
        const int64_t found = count_places(told, kind, 4 * half, count, tiles, wanted);
        RIG_TRY(rank, found == expected, "%s: %lld events, expected one of each of %lld tasks",
                mmoe_trace_kind_name(kind), (long long)found, (long long)expected);
    }
    return true;
}

bool told_tasks(struct rig_rank *rank, const struct told *told, mmoe_trace_kind kind, int64_t tiles) {
    return tell_places(rank, told, kind, told->plan->padded_rows / MMOE_ROW_BLOCK, tiles, NULL);
}

bool told_gradients(struct rig_rank *rank, const struct told *told, mmoe_trace_kind kind, int64_t tiles,
                    bool only_with_rows) {
    return tell_places(rank, told, kind, told->plan->local_experts, tiles,
                       only_with_rows ? told->plan->expert_rows : NULL);
}

/* ---- Rows ---- */

static int rank_in(uint64_t ranks) {
    for (int r = 0; r < 64; r++)
        if (ranks == (uint64_t)1 << r)
            return r;
    return -1;
}

/* The first row of the token that an event tells of; padded_rows: it has none. */
static int64_t first_row_of(const mmoe_plan *plan, const mmoe_trace_event *event) {
    int64_t row = 0;
    while (row < plan->padded_rows && !(plan->row_primary[row] == row && plan->row_token[row] == event->token &&
                                        plan->row_source[row] == rank_in(event->ranks)))
        row++;
    return row;
}

static bool tell_pulls(struct rig_rank *rank, const struct told *told) {
    const mmoe_plan *plan = told->plan;
    const int64_t row_bytes = 2 * told->layer->hidden;
    const int64_t pieces = told->slots * ((row_bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    int64_t *missing = calloc((size_t)plan->padded_rows + 1, sizeof *missing), wanted = 0, peer_bytes = 0;
    bool good = true;
    for (int64_t row = 0; row < plan->padded_rows; row++) {
        missing[row] = plan->row_primary[row] == row ? told->slots * row_bytes : 0;
        wanted += missing[row] > 0 ? pieces : 0;
    }
    for (int64_t i = 0; i < told->trace->count && good; i++) {
        const mmoe_trace_event *event = &told->trace->events[i];
        if (event->kind != MMOE_TRACE_PULL)
            continue;
        const int64_t row = first_row_of(plan, event);
        good = row < plan->padded_rows && event->tile >= 0 && event->tile < pieces;
        missing[row] -= event->bytes;
        wanted--;
        peer_bytes += rank_in(event->ranks) != rank->rank ? event->bytes : 0;
    }
    for (int64_t row = 0; row < plan->padded_rows; row++)
        good &= missing[row] == 0;
    free(missing);
    RIG_TRY(rank, good && wanted == 0, "tokens were not pulled once each");
    RIG_TRY(rank, peer_bytes == told->report.bytes_pulled, "%lld bytes pulled, the report says %lld",
            (long long)peer_bytes, (long long)told->report.bytes_pulled);
    return true;
}

bool told_fetching(struct rig_rank *rank, const struct told *told) {
    const mmoe_plan *plan = told->plan;
    const int64_t bytes = told->slots * plan->rows * 2 * told->layer->hidden;
    int64_t spread = 0, pads = 0;
    for (int64_t i = 0; i < told->trace->count; i++) {
        const mmoe_trace_event *event = &told->trace->events[i];
        spread += event->kind == MMOE_TRACE_SPREAD ? (int64_t)event->rows * event->bytes : 0;
        pads += event->kind == MMOE_TRACE_CLEAR_PADS ? event->rows : 0;
    }
    RIG_TRY(rank, spread == bytes, "%lld bytes of rows in, expected %lld", (long long)spread, (long long)bytes);
    RIG_TRY(rank, pads == plan->padded_rows - plan->rows, "%lld pads, expected %lld", (long long)pads,
            (long long)(plan->padded_rows - plan->rows));
    return tell_pulls(rank, told);
}

/* With a grouped combine one for each token that has any here. */
static int64_t rows_that_travel(const struct told *told) {
    const mmoe_plan *plan = told->plan;
    int64_t tokens = 0;
    if (told->layer->combine != MMOE_COMBINE_GROUPED)
        return plan->rows;
    for (int64_t row = 0; row < plan->padded_rows; row++)
        tokens += plan->row_primary[row] == row;
    return tokens;
}

bool told_pushes(struct rig_rank *rank, const struct told *told, mmoe_trace_kind kind, int64_t bytes,
                 int64_t *to_peers) {
    const uint64_t own = (uint64_t)1 << rank->rank;
    const int64_t expected = rows_that_travel(told) * bytes;
    int64_t pushed = 0;
    for (int64_t i = 0; i < told->trace->count; i++) {
        const mmoe_trace_event *event = &told->trace->events[i];
        if (event->kind != kind)
            continue;
        pushed += (int64_t)event->rows * event->bytes;
        *to_peers += (int64_t)event->peer_rows * event->bytes;
        RIG_TRY(rank,
                (event->peer_rows > 0) == ((event->ranks & ~own) != 0) &&
                    (event->rows > event->peer_rows) == ((event->ranks & own) != 0),
                "the ranks of a %s are not those of its rows", mmoe_trace_kind_name(kind));
    }
    RIG_TRY(rank, pushed == expected, "%s: %lld bytes out, expected %lld", mmoe_trace_kind_name(kind),
            (long long)pushed, (long long)expected);
    return true;
}

bool told_sums(struct rig_rank *rank, const struct told *told, unsigned roles) {
    char *seen = calloc((size_t)told->tokens + 1, 1);
    bool good = true;
    for (int64_t i = 0; i < told->trace->count && good; i++) {
        const mmoe_trace_event *event = &told->trace->events[i];
        if (event->kind != MMOE_TRACE_SUM)
            continue;
        good = (roles >> event->role & 1) != 0;
        for (int32_t t = event->token; t < event->token + event->rows && good; t++)
            good = t < told->tokens && !seen[t]++;
    }
    for (int64_t t = 0; t < told->tokens; t++)
        good &= seen[t];
    free(seen);
    RIG_TRY(rank, good, "tokens were not summed once each");
    return true;
}

/* ---- Losses ---- */

bool told_cut(struct rig_rank *rank, const mmoe_trace *trace, int64_t records, int kernels) {
    int64_t count = 0;
    for (int64_t i = 0; i < trace->count; i++) {
        const mmoe_trace_event *event = &trace->events[i];
        const bool same = i > 0 && event->multiprocessor == event[-1].multiprocessor && event->role == event[-1].role &&
                          (event->role == MMOE_TRACE_FLIGHT || event->number == event[-1].number);
        count = same ? count + 1 : 1;
        RIG_TRY(rank, count <= records * kernels, "more than %lld events of one warp", (long long)(records * kernels));
    }
    RIG_TRY(rank, trace->lost > 0, "no event is counted as lost");
    return told_times(rank, trace);
}
