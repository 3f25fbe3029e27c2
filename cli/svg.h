/* Pictures as SVG text: boxes, lines and words. Colours are classes, which the picture's style names. */
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include <stdio.h>

/* `style` is CSS, beyond that of text and lines. */
void svg_begin(FILE *file, double width, double height, const char *title, const char *style);
void svg_end(FILE *file);

void svg_box(FILE *file, double x, double y, double width, double height, const char *class);
void svg_line(FILE *file, double x1, double y1, double x2, double y2, const char *class);

/* `class` may have "middle" or "end": where x is in the text; else at its begin. */
void svg_text(FILE *file, double x, double y, const char *class, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Many boxes of one class and height side by side, as one path. Neighbours from left to right without a visible gap
 * become one. */
struct svg_row {
    FILE *file;
    double y, height;
    double from, to; /* of the box that is not written yet; to < from: none is */
};
void svg_row_begin(struct svg_row *row, FILE *file, double y, double height, const char *class);
void svg_row_box(struct svg_row *row, double from, double to);
void svg_row_end(struct svg_row *row);

/* The area between `base` and the curve through count points, `step` apart, each `height` * value above it. */
void svg_area(FILE *file, double x, double base, double step, double height, const double *values, int count,
              const char *class);

/* About as wide as a text of the usual size is. */
double svg_text_width(const char *text);

/* The distance of ticks, 1, 2 or 5 times a power of ten, of which `length` has `most` at most. */
double svg_tick(double length, int most);

#endif
