/* Traces as a picture: for each rank how much is multiplied and what moves over the link, and below that some of its
 * multiprocessors, one a row: what the consumers do, and under it what is pulled and what is stored and pushed. */
#ifndef CLI_TRACE_SVG_H
#define CLI_TRACE_SVG_H

#include <stdio.h>

/* `traces` is a struct traces. */
void trace_write_svg(FILE *file, const void *traces);

#endif
