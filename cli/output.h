/* Files that a command writes: under a temporary name first, so that no half file is ever seen. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdio.h>

/* Writes a file's text; what can't be written shows in the FILE's error. */
typedef void output_text(FILE *file, const void *context);

int output_write(const char *path, output_text *text, const void *context);

/* `name` with `ending`, instead of ".json" or ".svg" where it ends so; to be freed. NULL: no memory. */
char *output_name(const char *name, const char *ending);

/* Whether output_write can make such a file, to be told before the work that fills it. */
int output_check(const char *path);

#endif
