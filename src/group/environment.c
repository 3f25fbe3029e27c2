/* Rank, world and meeting place from the environment, as torchrun sets it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"

static mmoe_status parse(const char *variable, const char *text, long least, long most, int *out) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s is \"%.40s\", expected a number %ld .. %ld", variable, text, least,
                       most);
    }
    *out = (int)value;
    return MMOE_OK;
}

static mmoe_status require(const char *variable, long least, long most, int *out) {
    const char *text = getenv(variable);
    if (text == NULL) {
        return mm_fail(MMOE_INVALID_ARGUMENT,
                       "%s is not set, expected a number %ld .. %ld in the environment, as torchrun "
                       "sets it",
                       variable, least, most);
    }
    return parse(variable, text, least, most, out);
}

/* A group lies on one host: what torchrun says about this host alone must be what it says about the whole run. */
static mmoe_status check_one_host(const char *local, const char *global, int value) {
    const char *text = getenv(local);
    if (text == NULL) {
        return MMOE_OK;
    }
    int here = 0;
    mmoe_status status = parse(local, text, 0, INT32_MAX, &here);
    if (status == MMOE_OK && here != value) {
        return mm_fail(MMOE_UNSUPPORTED, "%s is %d and %s is %d: groups across hosts are not supported yet", local,
                       here, global, value);
    }
    return status;
}

int mm_group_local_rank(int rank) {
    const char *text = getenv("LOCAL_RANK");
    char *end;
    const long value = text != NULL ? strtol(text, &end, 10) : -1;
    return value >= 0 && value <= INT32_MAX && end != text && *end == '\0' ? (int)value : rank;
}

static mmoe_status find_rendezvous(char *rendezvous, size_t bytes) {
    const char *path = getenv("MMOE_RENDEZVOUS");
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"), *run = getenv("TORCHELASTIC_RUN_ID");
    if (path == NULL && (address == NULL || port == NULL)) {
        return mm_fail(MMOE_INVALID_ARGUMENT,
                       "%s is not set, expected MASTER_ADDR and MASTER_PORT, or MMOE_RENDEZVOUS with "
                       "a path, in the environment",
                       address == NULL ? "MASTER_ADDR" : "MASTER_PORT");
    }
    int length = path != NULL ? snprintf(rendezvous, bytes, "path:%s", path)
                              : snprintf(rendezvous, bytes, "name:%s %s %s", address, port, run != NULL ? run : "");
    if (length < 0 || (size_t)length >= bytes) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s is too long, expected at most %zu bytes",
                       path != NULL ? "MMOE_RENDEZVOUS" : "MASTER_ADDR, MASTER_PORT and TORCHELASTIC_RUN_ID together",
                       bytes - sizeof "path:");
    }
    return MMOE_OK;
}

mmoe_status mm_group_environment(int *rank, int *world, char *rendezvous, size_t bytes) {
    mmoe_status status = require("WORLD_SIZE", 1, MMOE_MAX_WORLD, world);
    if (status == MMOE_OK) {
        status = require("RANK", 0, *world - 1, rank);
    }
    if (status == MMOE_OK) {
        status = check_one_host("LOCAL_WORLD_SIZE", "WORLD_SIZE", *world);
    }
    if (status == MMOE_OK) {
        status = check_one_host("LOCAL_RANK", "RANK", *rank);
    }
    return status == MMOE_OK ? find_rendezvous(rendezvous, bytes) : status;
}
