/* Files of a command's own making; see output.h. */
#include "output.h"

#include <errno.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"

static int write_and_rename(const char *path, char *temporary, output_text *text, const void *context) {
    int descriptor = mkstemp(temporary);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (!file) {
        int error = errno;
        if (descriptor >= 0) {
            close(descriptor);
            unlink(temporary);
        }
        return complain(EXIT_INPUT, "'%s' can't be written: %s", path, strerror(error));
    }
    text(file, context);
    int failed = ferror(file);
    failed |= fchmod(descriptor, 0644) != 0;
    failed |= fclose(file) != 0;
    if (!failed && !rename(temporary, path))
        return 0;
    int error = errno;
    unlink(temporary);
    return complain(EXIT_RUN, "'%s' can't be written: %s", path, strerror(error));
}

int output_check(const char *path) {
    struct stat status;
    char *copy = strdup(path);
    if (!copy)
        return complain_memory("a file name");
    bool good = !access(dirname(copy), W_OK | X_OK) && (stat(path, &status) || S_ISREG(status.st_mode));
    free(copy);
    return good ? 0 : complain(EXIT_INPUT, "--output is '%s', expected a file in a folder that can be written", path);
}

int output_write(const char *path, output_text *text, const void *context) {
    size_t bytes = strlen(path) + 8;
    char *temporary = malloc(bytes);
    if (!temporary)
        return complain_memory("a file name");
    snprintf(temporary, bytes, "%s.XXXXXX", path);
    int code = write_and_rename(path, temporary, text, context);
    free(temporary);
    return code;
}

static bool ends_with(const char *name, const char *ending) {
    size_t length = strlen(name), end = strlen(ending);
    return length > end && !strcmp(name + length - end, ending);
}

char *output_name(const char *name, const char *ending) {
    size_t length = strlen(name);
    if (ends_with(name, ".json") || ends_with(name, ".svg"))
        length = (size_t)(strrchr(name, '.') - name);
    char *made = malloc(length + strlen(ending) + 1);
    if (made) {
        memcpy(made, name, length);
        strcpy(made + length, ending);
    }
    return made;
}
