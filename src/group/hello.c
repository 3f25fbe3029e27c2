/* Making and comparing hellos. */
#include "group/hello.h"

#include <stdio.h>
#include <string.h>

#include "group/group.h"

static const char magic[8] = {'m', 'e', 'g', 'a', 'm', 'o', 'e', '\n'};

struct mm_hello mm_hello_of(const struct mmoe_group *group, double waited_seconds) {
    const mmoe_group_config *config = &group->config;
    struct mm_hello hello;
    memset(&hello, 0, sizeof hello); /* gaps too: it is sent as bytes */
    memcpy(hello.front.magic, magic, sizeof magic);
    hello.front.protocol = MM_PROTOCOL;
    hello.front.bytes = sizeof hello;
    hello.front.rank = group->rank;
    hello.front.world = group->world;
    snprintf(hello.front.version, sizeof hello.front.version, "%d.%d.%d", MMOE_VERSION_MAJOR, MMOE_VERSION_MINOR,
             MMOE_VERSION_PATCH);
    hello.waited_ms = (int64_t)(waited_seconds * 1e3);
    hello.max_tokens = config->max_tokens;
    hello.max_hidden = config->max_hidden;
    hello.max_top_k = config->max_top_k;
    hello.max_experts = config->max_experts;
    snprintf(hello.backend, sizeof hello.backend, "%s", config->backend);
    snprintf(hello.name, sizeof hello.name, "%s", config->name);
    return hello;
}

bool mm_hello_is_ours(const struct mm_hello_front *front) {
    return memcmp(front->magic, magic, sizeof magic) == 0 && front->rank >= 0 && front->rank < front->world &&
           front->world <= MMOE_MAX_WORLD;
}

bool mm_hello_is_current(const struct mm_hello_front *front) {
    return front->protocol == MM_PROTOCOL && front->bytes == sizeof(struct mm_hello);
}

static mmoe_status compare_number(const char *field, const struct mm_hello *a, int64_t in_a, const struct mm_hello *b,
                                  int64_t in_b) {
    return in_a == in_b ? MMOE_OK
                        : mm_fail(MMOE_MISMATCH, "%s is %lld on rank %d and %lld on rank %d", field, (long long)in_a,
                                  a->front.rank, (long long)in_b, b->front.rank);
}

/* Texts come from another process: they may lack their end. */
static mmoe_status compare_text(const char *field, const struct mm_hello *a, const char *in_a, const struct mm_hello *b,
                                const char *in_b, size_t bytes) {
    return strncmp(in_a, in_b, bytes) == 0
               ? MMOE_OK
               : mm_fail(MMOE_MISMATCH, "%s is \"%.*s\" on rank %d and \"%.*s\" on rank %d", field, (int)bytes, in_a,
                         a->front.rank, (int)bytes, in_b, b->front.rank);
}

static mmoe_status compare_front(const struct mm_hello *a, const struct mm_hello *b) {
    mmoe_status status =
        compare_text("the library version", a, a->front.version, b, b->front.version, sizeof a->front.version);
    if (status == MMOE_OK) {
        status = compare_number("the set-up protocol", a, a->front.protocol, b, b->front.protocol);
    }
    if (status == MMOE_OK) {
        status = compare_number("the size of a hello", a, a->front.bytes, b, b->front.bytes);
    }
    return status == MMOE_OK ? compare_number("world", a, a->front.world, b, b->front.world) : status;
}

mmoe_status mm_hello_compare(const struct mm_hello *a, const struct mm_hello *b) {
    const struct {
        const char *field;
        int64_t in_a, in_b;
    } numbers[] = {
        {"max_tokens", a->max_tokens, b->max_tokens},
        {"max_hidden", a->max_hidden, b->max_hidden},
        {"max_top_k", a->max_top_k, b->max_top_k},
        {"max_experts", a->max_experts, b->max_experts},
    };
    mmoe_status status = compare_front(a, b);
    if (status == MMOE_OK && a->front.rank == b->front.rank) {
        status =
            mm_fail(MMOE_MISMATCH, "rank %d came twice, expected each rank to be a process of its own", a->front.rank);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == MMOE_OK; i++) {
        status = compare_number(numbers[i].field, a, numbers[i].in_a, b, numbers[i].in_b);
    }
    if (status == MMOE_OK) {
        status = compare_text("backend", a, a->backend, b, b->backend, sizeof a->backend);
    }
    return status == MMOE_OK ? compare_text("name", a, a->name, b, b->name, sizeof a->name) : status;
}
