/* Bar charts; see chart.h. */
#include "chart.h"

#include <stdlib.h>

#include "svg.h"

#define WIDTH 1100.0
#define LEFT 20.0
#define PLOT 860.0
#define HEAD 92.0
#define LABEL 20.0
#define BAR 15.0
#define GROUP_GAP 14.0
#define AXIS 30.0

static const char style[] = ".series0 { fill: #3b6fb6 } .series1 { fill: #d7402b } .series2 { fill: #9a9a9a }\n";

struct chart_group *chart_add(struct chart *chart) {
    if (chart->count == chart->room) {
        int room = chart->room ? 2 * chart->room : 16;
        void *groups = realloc(chart->groups, (size_t)room * sizeof *chart->groups);
        if (!groups)
            return NULL;
        chart->groups = groups;
        chart->room = room;
    }
    chart->groups[chart->count] = (struct chart_group){.label = ""};
    return &chart->groups[chart->count++];
}

void chart_free(struct chart *chart) {
    free(chart->groups);
    *chart = (struct chart){.groups = NULL};
}

static int series_of(const struct chart *chart) {
    int count = 0;
    while (count < CHART_SERIES && chart->series[count])
        count++;
    return count;
}

static double largest(const struct chart *chart) {
    double most = 0;
    for (int g = 0; g < chart->count; g++)
        for (int s = 0; s < series_of(chart); s++)
            most = chart->groups[g].values[s] > most ? chart->groups[g].values[s] : most;
    return most > 0 ? most : 1;
}

static void draw_legend(FILE *file, const struct chart *chart) {
    double x = LEFT;
    for (int s = 0; s < series_of(chart); s++) {
        char class[] = "series0";
        class[6] = (char)('0' + s);
        svg_box(file, x, 60, 12, 12, class);
        svg_text(file, x + 17, 70, "", "%s", chart->series[s]);
        x += svg_text_width(chart->series[s]) + 45;
    }
}

static void draw_group(FILE *file, const struct chart *chart, const struct chart_group *group, double y, double unit) {
    svg_text(file, LEFT, y + 14, "", "%s", group->label);
    for (int s = 0; s < series_of(chart); s++) {
        double top = y + LABEL + s * BAR, length = unit * group->values[s], ratio = group->values[s] / group->values[0];
        char class[] = "series0";
        class[6] = (char)('0' + s);
        svg_box(file, LEFT, top, length, BAR - 2, class);
        if (s == 0)
            svg_text(file, LEFT + length + 6, top + 10, "small", "%.3g ms", group->values[s]);
        else
            svg_text(file, LEFT + length + 6, top + 10, "small", "%.3g ms, %.2f times the first", group->values[s],
                     ratio);
    }
}

static void draw_axis(FILE *file, double y, double most, double unit) {
    double tick = svg_tick(most, 10);
    for (int i = 0; i * tick <= most; i++) {
        double x = LEFT + unit * i * tick;
        svg_line(file, x, HEAD, x, y, "light");
        svg_text(file, x, y + 16, "middle small", i == 0 ? "0 ms" : "%g", i * tick);
    }
}

void chart_write_svg(FILE *file, const void *from) {
    const struct chart *chart = from;
    double group = LABEL + series_of(chart) * BAR + GROUP_GAP, most = largest(chart), unit = PLOT / most;
    double end = HEAD + chart->count * group;
    svg_begin(file, WIDTH, end + AXIS, chart->title, style);
    svg_text(file, LEFT, 26, "large", "%s", chart->title);
    svg_text(file, LEFT, 46, "faint", "%s", chart->note);
    draw_legend(file, chart);
    draw_axis(file, end, most, unit);
    for (int g = 0; g < chart->count; g++)
        draw_group(file, chart, &chart->groups[g], HEAD + g * group, unit);
    svg_end(file);
}
