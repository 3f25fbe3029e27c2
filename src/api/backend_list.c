/* Which backends there are, and what they compute. */
#include <stdio.h>

#include "api/check.h"

#define DETAIL_BYTES 512
#define DEVICE_BYTES 4096 /* a device tells of each of its peers */

int mmoe_backend_count(void) {
    int count = 0;
    while (mm_backends[count] != NULL) {
        count++;
    }
    return count;
}

const char *mmoe_backend(int index, int *present, const char **detail) {
    static _Thread_local char text[DETAIL_BYTES];
    if (index < 0 || index >= mmoe_backend_count()) {
        return NULL;
    }
    bool found = mm_backends[index]->present(text, sizeof text);
    if (present != NULL) {
        *present = found;
    }
    if (detail != NULL) {
        *detail = text;
    }
    return mm_backends[index]->name;
}

const char *mmoe_backend_device(int index, int device) {
    static _Thread_local char text[DEVICE_BYTES];
    if (index < 0 || index >= mmoe_backend_count() || device < 0 || mm_backends[index]->describe_device == NULL) {
        return NULL;
    }
    return mm_backends[index]->describe_device(device, text, sizeof text) ? text : NULL;
}

const char *mmoe_unsupported_reason(const char *backend, const mmoe_layer_config *config, int world) {
    static _Thread_local char text[MM_ERROR_BYTES];
    const struct mm_backend *found;
    mmoe_status status = mm_backend_find(backend, &found);
    if (status == MMOE_OK) {
        status = mm_check_layer(config, world);
    }
    if (status != MMOE_OK) {
        snprintf(text, sizeof text, "%s", mmoe_last_error());
        return text;
    }
    return found->supports(config, text, sizeof text) ? NULL : text;
}
