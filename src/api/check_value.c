/* Checks of plain numbers and pointers. */
#include "api/check.h"

mmoe_status mm_check_range(const char *name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s is %lld, expected %lld .. %lld", name, (long long)value,
                       (long long)low, (long long)high);
    }
    return MMOE_OK;
}

mmoe_status mm_check_pointer(const char *name, const void *pointer, const char *expected) {
    return pointer != NULL ? MMOE_OK : mm_fail(MMOE_INVALID_ARGUMENT, "%s is NULL, expected %s", name, expected);
}

mmoe_status mm_check_struct_size(const char *name, size_t given, size_t expected, const char *maker) {
    if (given != expected) {
        return mm_fail(MMOE_INVALID_ARGUMENT, "%s.struct_size is %zu, expected %zu as %s sets it", name, given,
                       expected, maker);
    }
    return MMOE_OK;
}
