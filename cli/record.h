/* Parts of the JSON records and of the texts that several commands print alike. */
#ifndef CLI_RECORD_H
#define CLI_RECORD_H

#include <jansson.h>
#include <stdio.h>

#include "problem.h"

/* The beginning of every record: what made it, and the problem. */
json_t *record_start(const struct problem *problem);

/* The same as text: two lines. */
void record_print_problem(const struct problem *problem, FILE *file);

/* A number, or null when it is NaN or infinite, which JSON can't hold. */
json_t *record_real(double value);

/* An array of integers. */
json_t *record_integers(const int64_t *values, int64_t count);

/* Prints a record on stdout, frees it and returns an exit code; one that could not be built (NULL, no memory) too. */
int record_print(json_t *record);

/* Writes it to a file, at once (output.h). Does not free it. */
int record_write(const json_t *record, const char *path);

/* "1.5 MiB" */
const char *record_bytes_text(double bytes, char text[24]);

#endif
