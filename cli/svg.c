/* SVG text; see svg.h. */
#include "svg.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define GAP 0.4   /* units that nobody sees */
#define LEAST 0.3 /* the width of a box that is shown at all */

static void write_escaped(FILE *file, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            fputc(*text, file);
        }
    }
}

void svg_begin(FILE *file, double width, double height, const char *title, const char *style) {
    fprintf(file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
            "role=\"img\">\n<title>",
            width, height, width, height);
    write_escaped(file, title);
    fprintf(file,
            "</title>\n<style>\n"
            "text { font: 12px sans-serif; fill: #222 }\n"
            ".large { font-size: 16px } .small { font-size: 10px } .faint { fill: #666 }\n"
            ".middle { text-anchor: middle } .end { text-anchor: end }\n"
            "line { stroke: #bbb; stroke-width: 1 } .light { stroke: #e6e6e6 } .paper { fill: #fff }\n%s</style>\n",
            style);
    svg_box(file, 0, 0, width, height, "paper");
}

void svg_end(FILE *file) {
    fputs("</svg>\n", file);
}

void svg_box(FILE *file, double x, double y, double width, double height, const char *class) {
    fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n", x, y, width, height,
            class);
}

void svg_line(FILE *file, double x1, double y1, double x2, double y2, const char *class) {
    fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, class);
}

void svg_text(FILE *file, double x, double y, const char *class, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    write_escaped(file, text);
    fputs("</text>\n", file);
}

void svg_row_begin(struct svg_row *row, FILE *file, double y, double height, const char *class) {
    *row = (struct svg_row){.file = file, .y = y, .height = height, .from = 0, .to = -1};
    fprintf(file, "<path class=\"%s\" d=\"", class);
}

static void write_box(struct svg_row *row) {
    double width = row->to - row->from > LEAST ? row->to - row->from : LEAST;
    if (row->to >= row->from)
        fprintf(row->file, "M%.1f %.1fh%.1fv%.1fh-%.1fz", row->from, row->y, width, row->height, width);
}

void svg_row_box(struct svg_row *row, double from, double to) {
    if (row->to >= row->from && from >= row->from && from - row->to < GAP) {
        row->to = to > row->to ? to : row->to;
        return;
    }
    write_box(row);
    row->from = from;
    row->to = to;
}

void svg_row_end(struct svg_row *row) {
    write_box(row);
    fputs("\"/>\n", row->file);
}

void svg_area(FILE *file, double x, double base, double step, double height, const double *values, int count,
              const char *class) {
    fprintf(file, "<path class=\"%s\" d=\"M%.1f %.1f", class, x, base);
    for (int i = 0; i < count; i++)
        fprintf(file, "L%.1f %.1f", x + step * (i + 0.5), base - height * values[i]);
    fprintf(file, "L%.1f %.1fz\"/>\n", x + step * count, base);
}

double svg_text_width(const char *text) {
    return 6.6 * (double)strlen(text);
}

double svg_tick(double length, int most) {
    static const double steps[] = {1, 2, 5};
    double power = pow(10, floor(log10(length / most)));
    for (int i = 0; i < 3; i++)
        if (length / (steps[i] * power) <= most)
            return steps[i] * power;
    return 10 * power;
}
