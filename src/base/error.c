/* The calling thread's error text. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[MM_ERROR_BYTES];

/* Formatted apart first: the arguments may point into the current text. */
static void set_text(const char *format, va_list arguments, const char *tail) {
    char text[MM_ERROR_BYTES];
    int length = vsnprintf(text, sizeof text, format, arguments);
    size_t used = length < 0 ? 0 : (size_t)length;
    if (used < sizeof text) {
        snprintf(text + used, sizeof text - used, "%s", tail);
    }
    memcpy(error_text, text, sizeof text);
}

mmoe_status mm_fail(mmoe_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments, "");
    va_end(arguments);
    return status;
}

mmoe_status mm_fail_system(int error, const char *format, ...) {
    char scratch[128], tail[160];
    snprintf(tail, sizeof tail, ": %s", strerror_r(error, scratch, sizeof scratch));
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments, tail);
    va_end(arguments);
    return MMOE_SYSTEM;
}

const char *mmoe_last_error(void) {
    return error_text;
}
