/* The backends of this build: a new one is a folder and a line here. */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"

const struct mm_backend *const mm_backends[] = {&mm_cuda_backend, &mm_cpu_backend, NULL};

#define NAMES_BYTES 128

/* "cpu, other", for error texts. */
static void list_names(char names[NAMES_BYTES]) {
    size_t used = 0;
    for (const struct mm_backend *const *backend = mm_backends; *backend != NULL && used < NAMES_BYTES; backend++) {
        used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "", (*backend)->name);
    }
}

static mmoe_status find_named(const char *name, const struct mm_backend **backend) {
    char text[NAMES_BYTES];
    for (const struct mm_backend *const *each = mm_backends; *each != NULL; each++) {
        if (strcmp(name, (*each)->name) != 0) {
            continue;
        }
        if (!(*each)->present(text, sizeof text)) {
            return mm_fail(MMOE_UNSUPPORTED, "backend \"%s\" can't run on this machine: %s", name, text);
        }
        *backend = *each;
        return MMOE_OK;
    }
    list_names(text);
    return mm_fail(MMOE_INVALID_ARGUMENT, "backend is \"%s\", expected one of this build: %s", name, text);
}

/* A program that names no backend has its tensors in ordinary memory, so the default does not depend on the machine. */
#define DEFAULT_BACKEND "cpu"

mmoe_status mm_backend_find(const char *name, const struct mm_backend **backend) {
    *backend = NULL;
    return find_named(name != NULL ? name : DEFAULT_BACKEND, backend);
}
