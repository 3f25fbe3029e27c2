/* Driving the steps of a call with checked contents. */
#include "drive.h"

#include <string.h>

/* What a row holds: as many bytes as the crew's widest row has. */
struct row {
    uint32_t call, source, token, expert_rank;
};

static uint64_t mix(uint64_t a, uint64_t b) {
    struct rig_random random = rig_seed(a * UINT64_C(0x9e3779b97f4a7c15) + b);
    return rig_next(&random);
}

/* 0 .. max_tokens */
static int64_t tokens_of(const mmoe_group *group, int source) {
    return (int64_t)(mix(group->call, (uint64_t)source) % (uint64_t)(group->config.max_tokens + 1));
}

/* The rank that a slot is routed to; -1 for about a fifth of them. */
static int32_t route_of(const mmoe_group *group, int source, int64_t slot) {
    const uint64_t key = mix(mix(group->call, (uint64_t)source), (uint64_t)slot);
    return key % 5 == 0 ? -1 : (int32_t)((key >> 8) % (uint64_t)group->world);
}

/* Whether a source wants its rows back. In every second call each does; in the others a rank may want nothing, as in a
 * backward without dx and dw: then no arrival holds it back and left alone keeps it from overwriting what is read. */
static bool wants_rows(const mmoe_group *group, int source) {
    return group->call % 2 == 1 || mix(group->call, (uint64_t)source + 64) % 2 == 1;
}

static struct row row_of(const mmoe_group *group, int source, int64_t token, int expert_rank) {
    return (struct row){group->call, (uint32_t)source, (uint32_t)token, (uint32_t)expert_rank};
}

static struct row *rows_at(const mmoe_group *group, int rank, size_t offset) {
    return (struct row *)(void *)(group->segment[rank] + offset);
}

static int32_t *ids_at(const mmoe_group *group, int rank, int source) {
    return (int32_t *)(void *)(group->segment[rank] + group->layout.ids + (size_t)source * group->layout.ids_stride);
}

struct mm_header drive_header(const mmoe_group *group) {
    const bool wants = wants_rows(group, group->rank);
    struct mm_header header = {.tokens = tokens_of(group, group->rank), .wants_dx = wants, .wants_dw = wants};
    mm_call_agreement(group, MM_CALL_FORWARD, &header.agreed);
    return header;
}

static void write_slots(const mmoe_group *group) {
    const int64_t tokens = tokens_of(group, group->rank), top_k = group->config.max_top_k;
    for (int64_t t = 0; t < tokens; t++) {
        rows_at(group, group->rank, group->layout.x)[t] = row_of(group, group->rank, t, group->rank);
    }
    for (int r = 0; r < group->world; r++) {
        for (int64_t slot = 0; slot < tokens * top_k; slot++) {
            ids_at(group, r, group->rank)[slot] = route_of(group, group->rank, slot);
        }
    }
}

/* What came of the rows of one source. */
struct pulled {
    int64_t rows, dw; /* sent back */
    bool right;
};

/* Reads a peer's rows, and sends each back when the peer wants it: into its memory before it is told so. */
static struct pulled pull_and_push(const mmoe_group *group, int source) {
    const struct mm_header *header = mm_call_header(group, source);
    const int64_t tokens = header->tokens, top_k = group->config.max_top_k;
    const bool wants = header->wants_dx != 0;
    struct pulled pulled = {.dw = wants,
                            .right = tokens == tokens_of(group, source) && wants == wants_rows(group, source)};
    for (int64_t slot = 0; slot < tokens * top_k && pulled.right; slot++) {
        const int32_t route = ids_at(group, group->rank, source)[slot];
        const struct row expected = row_of(group, source, slot / top_k, source);
        if (route == group->rank) {
            struct row row = rows_at(group, source, group->layout.x)[slot / top_k];
            pulled.right = memcmp(&row, &expected, sizeof row) == 0;
            row.expert_rank = (uint32_t)group->rank;
            if (wants) {
                rows_at(group, source, group->layout.combine)[slot] = row;
                pulled.rows++;
            }
        }
        pulled.right = pulled.right && route == route_of(group, source, slot);
    }
    return pulled;
}

static bool results_are_right(const mmoe_group *group) {
    const int64_t slots = tokens_of(group, group->rank) * group->config.max_top_k;
    bool right = true;
    for (int64_t slot = 0; slot < slots; slot++) {
        const int32_t route = route_of(group, group->rank, slot);
        const struct row expected = row_of(group, group->rank, slot / group->config.max_top_k, route);
        const struct row *row = &rows_at(group, group->rank, group->layout.combine)[slot];
        right = right && (route < 0 || memcmp(row, &expected, sizeof expected) == 0);
    }
    return right;
}

/* Adds up what each rank sends back. */
static void count_results(const mmoe_group *group, int64_t *counts) {
    const int64_t slots = tokens_of(group, group->rank) * group->config.max_top_k;
    for (int64_t slot = 0; slot < slots; slot++) {
        const int32_t route = route_of(group, group->rank, slot);
        if (route >= 0) {
            counts[route]++;
        }
    }
}

static mmoe_status serve(struct rig_rank *rank, mmoe_group *group, int source) {
    mmoe_status status = mm_call_pull(group, source);
    if (status != MMOE_OK) {
        return status;
    }
    const struct pulled pulled = pull_and_push(group, source);
    if (!pulled.right) {
        rig_fail(rank, __FILE__, __LINE__, "call %u: a wrong row or id of rank %d", group->call, source);
    }
    status = mm_call_left(group, source);
    if (status == MMOE_OK) {
        status = mm_call_arrived(group, source, MM_ARRIVAL_ROWS, pulled.rows);
    }
    return status == MMOE_OK ? mm_call_arrived(group, source, MM_ARRIVAL_DW, pulled.dw) : status;
}

static mmoe_status await_results(struct rig_rank *rank, mmoe_group *group) {
    const bool wants = wants_rows(group, group->rank);
    int64_t rows[MMOE_MAX_WORLD] = {0}, dw[MMOE_MAX_WORLD];
    if (wants) {
        count_results(group, rows);
    }
    for (int r = 0; r < MMOE_MAX_WORLD; r++) {
        dw[r] = wants;
    }
    mmoe_status status = mm_call_await(group, MM_ARRIVAL_ROWS, rows);
    if (status == MMOE_OK && wants && !results_are_right(group)) {
        rig_fail(rank, __FILE__, __LINE__, "call %u: a wrong row came back", group->call);
    }
    return status == MMOE_OK ? mm_call_await(group, MM_ARRIVAL_DW, dw) : status;
}

mmoe_status drive_call(struct rig_rank *rank, mmoe_group *group) {
    mmoe_status status = mm_call_begin(group);
    if (status != MMOE_OK) {
        return status;
    }
    write_slots(group);
    const struct mm_header header = drive_header(group);
    status = mm_call_post(group, &header);
    if (status == MMOE_OK) {
        status = mm_call_meet(group);
    }
    for (int i = 0; i < group->world && status == MMOE_OK; i++) {
        status = serve(rank, group, (group->rank + i) % group->world);
    }
    if (status == MMOE_OK) {
        status = await_results(rank, group);
    }
    mm_call_end(group);
    return status;
}

mmoe_status drive_calls(struct rig_rank *rank, mmoe_group *group, int calls) {
    mmoe_status status = MMOE_OK;
    for (int i = 0; i < calls && status == MMOE_OK && !rank->failed; i++) {
        status = drive_call(rank, group);
    }
    return status;
}
