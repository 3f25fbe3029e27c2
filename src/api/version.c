/* Version and the names of the statuses. */
#include "megamoe.h"

#define TEXT_OF(value) #value
#define VERSION(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *mmoe_version(void) {
    return VERSION(MMOE_VERSION_MAJOR, MMOE_VERSION_MINOR, MMOE_VERSION_PATCH);
}

const char *mmoe_status_name(mmoe_status status) {
    static const char *const names[] = {
        [MMOE_OK] = "MMOE_OK",
        [MMOE_INVALID_ARGUMENT] = "MMOE_INVALID_ARGUMENT",
        [MMOE_UNSUPPORTED] = "MMOE_UNSUPPORTED",
        [MMOE_OUT_OF_MEMORY] = "MMOE_OUT_OF_MEMORY",
        [MMOE_SYSTEM] = "MMOE_SYSTEM",
        [MMOE_MISMATCH] = "MMOE_MISMATCH",
        [MMOE_REFUSED] = "MMOE_REFUSED",
        [MMOE_CAPACITY] = "MMOE_CAPACITY",
        [MMOE_TIMEOUT] = "MMOE_TIMEOUT",
        [MMOE_PEER_LOST] = "MMOE_PEER_LOST",
        [MMOE_BROKEN] = "MMOE_BROKEN",
    };
    size_t index = (size_t)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown status";
}
