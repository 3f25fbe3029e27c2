/* The times and bytes that a call reports, as a table and as JSON. */
#ifndef CLI_PHASES_H
#define CLI_PHASES_H

#include <jansson.h>
#include <stdio.h>

#include "megamoe.h"

#define PHASES 10

/* Times of a call in the order they happen, the total last: their names, and their seconds out of a report. */
extern const char *const phase_name[PHASES];
void phase_seconds(const mmoe_report *report, double seconds[PHASES]);

/* One line a rank. */
void phases_print(const mmoe_report *reports, int world, const char *title, FILE *file);

/* An array of one object a rank. */
json_t *phases_record(const mmoe_report *reports, int world);

#endif
