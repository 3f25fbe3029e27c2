/* One sentence on stderr. */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>

int complain(int code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* One call, so that the sentences of several ranks do not mix. */
    fprintf(stderr, "megamoe: %s\n", text);
    return code;
}

int complain_memory(const char *what) {
    return complain(EXIT_RUN, "no memory for %s", what);
}
