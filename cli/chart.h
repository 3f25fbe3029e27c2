/* Bars side by side as a picture: for each group one bar of each series, with its value and how it compares with the
 * first. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stdio.h>

#define CHART_SERIES 3

struct chart_group {
    char label[128];
    double values[CHART_SERIES]; /* milliseconds */
};

struct chart {
    char title[128], note[256];
    const char *series[CHART_SERIES]; /* names; NULL after the last one */
    struct chart_group *groups;
    int count, room;
};

/* A new group at the end, NULL without memory. */
struct chart_group *chart_add(struct chart *chart);
void chart_free(struct chart *chart);

/* `chart` is a struct chart with at least one group. */
void chart_write_svg(FILE *file, const void *chart);

#endif
