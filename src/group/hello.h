/* What a rank says of itself when it meets the others: processes in a message, ranks of an adopted group in memory. */
#ifndef MM_GROUP_HELLO_H
#define MM_GROUP_HELLO_H

#include <stdbool.h>

#include "megamoe.h"

/* Grows with every change of the messages of set-up or of the control part of a segment. */
#define MM_PROTOCOL 3

/* The same in all versions, so that any two can tell what keeps them apart. */
struct mm_hello_front {
    char magic[8];
    uint32_t protocol, bytes; /* of the whole hello */
    int32_t rank, world;
    char version[16];
};

struct mm_hello {
    struct mm_hello_front front;
    int64_t waited_ms; /* since the rank began its set-up */
    int64_t max_tokens, max_hidden, max_top_k, max_experts;
    char backend[32], name[64];
};

struct mm_hello mm_hello_of(const struct mmoe_group *group, double waited_seconds);

/* Whether this is a hello of ours at all, of whatever version. */
bool mm_hello_is_ours(const struct mm_hello_front *front);

/* Whether the rest of it can be read. */
bool mm_hello_is_current(const struct mm_hello_front *front);

/* MMOE_MISMATCH, naming the field and both values, when the two ranks can't be in one group. */
mmoe_status mm_hello_compare(const struct mm_hello *a, const struct mm_hello *b);

#endif
