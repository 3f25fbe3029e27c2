/* Traces as a picture; see trace_svg.h. */
#include "trace_svg.h"

#include <string.h>

#include "record.h"
#include "routing.h"
#include "svg.h"
#include "trace_rates.h"

/* ---- Places ---- */

#define WIDTH 1600.0
#define LEFT 110.0
#define PLOT 1450.0
#define LEGEND 64.0 /* its first line */
#define LINE 18.0
#define HEAD 118.0 /* title, legend, names of the calls */
#define TITLE 22.0 /* of a rank */
#define STRIP 46.0
#define STRIP_GAP 8.0
#define ROW 17.0
#define RANK_GAP 20.0
#define AXIS 34.0
#define MOST_ROWS 64 /* of all ranks */
#define LEAST_ROWS 4 /* of a rank */

#define CONSUMERS_HEIGHT 8.0
#define MOVES_HEIGHT 3.0

struct picture {
    FILE *file;
    const struct traces *traces;
    double unit;  /* of the plot, a microsecond */
    double speed; /* the highest of all ranks, GB/s */
    double y;     /* where the next thing goes */
};

static const char style[] = ".up { fill: #3b6fb6 } .down { fill: #7fb2e5 } .inner { fill: #1f7a8c } "
                            ".dx { fill: #79c2c9 } .weights { fill: #4a4e9e }\n"
                            ".stage { fill: #8e5ea2 } .wait { fill: #dcdcdc } .sum { fill: #3a9d5d }\n"
                            ".pull { fill: #d7402b } .push { fill: #f0a030 } .own { fill: #d9c3b0 } "
                            ".lost { fill: #c00 }\n.pulled { fill: #d7402b; fill-opacity: 0.75 } "
                            ".pushed { fill: #f0a030; fill-opacity: 0.75 }\n"
                            ".bold { font-weight: bold } .begin { stroke: #444; stroke-dasharray: 4 3 }\n";

/* ---- What is drawn ---- */

enum place { ANYWHERE, WITH_PEERS, IN_ITSELF };

#define KIND(kind) (UINT64_C(1) << MMOE_TRACE_##kind)

#define KINDS(first, last) (2 * KIND(last) - KIND(first))

#define PULLS_Y CONSUMERS_HEIGHT
#define STORES_Y (CONSUMERS_HEIGHT + MOVES_HEIGHT)

/* One class of boxes in a multiprocessor's row. */
static const struct lane {
    const char *class, *label;
    mmoe_trace_role role;
    uint64_t kinds;
    enum place place;
    double y, height;
} lanes[] = {
    {"up", "multiply gate and up", MMOE_TRACE_CONSUMER, KIND(MULTIPLY_GATE_UP), ANYWHERE, 0, CONSUMERS_HEIGHT},
    {"down", "multiply down", MMOE_TRACE_CONSUMER, KIND(MULTIPLY_DOWN), ANYWHERE, 0, CONSUMERS_HEIGHT},
    {"inner", "multiply for gradients of gate and up", MMOE_TRACE_CONSUMER, KIND(MULTIPLY_DGATE_UP), ANYWHERE, 0,
     CONSUMERS_HEIGHT},
    {"dx", "multiply for dx", MMOE_TRACE_CONSUMER, KIND(MULTIPLY_DX), ANYWHERE, 0, CONSUMERS_HEIGHT},
    {"weights", "multiply for gradients of weights", MMOE_TRACE_CONSUMER, KIND(MULTIPLY_WGRAD), ANYWHERE, 0,
     CONSUMERS_HEIGHT},
    {"stage", "epilogues", MMOE_TRACE_CONSUMER, KINDS(STAGE_GATE_UP, DIFFERENTIATE), ANYWHERE, 0, CONSUMERS_HEIGHT},
    {"wait", "await a task, or results", MMOE_TRACE_CONSUMER, KIND(AWAIT_TASK) | KIND(AWAIT_RESULTS), ANYWHERE, 0,
     CONSUMERS_HEIGHT},
    {"sum", "sum results", MMOE_TRACE_CONSUMER, KIND(SUM), ANYWHERE, 0, CONSUMERS_HEIGHT},
    {"wait", NULL, MMOE_TRACE_FINISHER, KIND(AWAIT_RESULTS), ANYWHERE, 0, CONSUMERS_HEIGHT},
    {"sum", NULL, MMOE_TRACE_FINISHER, KIND(COPY_DW) | KIND(SUM), ANYWHERE, 0, CONSUMERS_HEIGHT},
    {"wait", NULL, MMOE_TRACE_SUMMER, KIND(AWAIT_RESULTS), ANYWHERE, STORES_Y, MOVES_HEIGHT},
    {"sum", NULL, MMOE_TRACE_SUMMER, KIND(SUM), ANYWHERE, STORES_Y, MOVES_HEIGHT},
    {"pull", "pull tokens from peers", MMOE_TRACE_FLIGHT, KIND(PULL), WITH_PEERS, PULLS_Y, MOVES_HEIGHT},
    {"push", "push results, some to peers", MMOE_TRACE_STORER, KIND(PUSH) | KIND(PUSH_DW), WITH_PEERS, STORES_Y,
     MOVES_HEIGHT},
    {"push", NULL, MMOE_TRACE_GROUPER, KIND(PUSH), WITH_PEERS, STORES_Y, MOVES_HEIGHT},
    {"own", "the same in the own memory", MMOE_TRACE_FLIGHT, KIND(PULL), IN_ITSELF, PULLS_Y, MOVES_HEIGHT},
    {"own", NULL, MMOE_TRACE_STORER, KINDS(STORE, PUSH_DW), IN_ITSELF, STORES_Y, MOVES_HEIGHT},
};
#define LANES ((int)(sizeof lanes / sizeof lanes[0]))

static bool is_in(const struct lane *lane, int rank, const mmoe_trace_event *event) {
    bool peers = trace_pulled(event, rank) > 0 || trace_pushed(event) > 0;
    return event->role == lane->role && (lane->kinds >> event->kind & 1) != 0 &&
           (lane->place == ANYWHERE || peers == (lane->place == WITH_PEERS)) &&
           (event->role == MMOE_TRACE_FLIGHT || event->number == 0);
}

static double x_of(const struct picture *picture, int64_t ns) {
    return LEFT + picture->unit * trace_us(picture->traces, ns);
}

static void draw_row(const struct picture *picture, int rank, const mmoe_trace_event *first,
                     const mmoe_trace_event *end) {
    svg_text(picture->file, LEFT - 8, picture->y + 9, "small end", "SM %d", first->multiprocessor);
    for (int l = 0; l < LANES; l++) {
        struct svg_row row;
        svg_row_begin(&row, picture->file, picture->y + lanes[l].y, lanes[l].height, lanes[l].class);
        for (const mmoe_trace_event *event = first; event < end; event++)
            if (is_in(&lanes[l], rank, event))
                svg_row_box(&row, x_of(picture, event->begin_ns), x_of(picture, event->end_ns));
        svg_row_end(&row);
    }
}

/* ---- A rank ---- */

static int rows_of(const struct traces *traces, int rank) {
    int share = MOST_ROWS / traces->problem->world, all = traces->rank[rank].whole.multiprocessors;
    int wanted = (int)traces->problem->options->rows;
    int most = wanted > 0 ? wanted : share > LEAST_ROWS ? share : LEAST_ROWS;
    return all < most ? all : most;
}

/* Evenly from all multiprocessors. */
static void draw_rows(struct picture *picture, int rank) {
    const mmoe_trace *trace = &picture->traces->rank[rank].whole;
    int shown = rows_of(picture->traces, rank), number = 0;
    for (int64_t first = 0, end; first < trace->count; first = end) {
        for (end = first;
             end < trace->count && trace->events[end].multiprocessor == trace->events[first].multiprocessor;)
            end++;
        if (number == 0 || number * shown / trace->multiprocessors != (number - 1) * shown / trace->multiprocessors) {
            draw_row(picture, rank, trace->events + first, trace->events + end);
            picture->y += ROW;
        }
        number++;
    }
}

/* "forward 2500.0 us, multiplying 80.0 % of it; ", of each call. */
static void write_calls(const struct traces *traces, int rank, char *text, size_t bytes) {
    *text = '\0';
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        const struct trace_call *call = &traces->rank[rank].call[pass];
        const double us = trace_length_us(&call->trace);
        const size_t used = strlen(text);
        if (traces_have(traces, (enum trace_pass)pass))
            snprintf(text + used, bytes - used, "%s %.1f \302\265s, multiplying %.1f %% of it; ", trace_pass_name[pass],
                     us, us > 0 ? 100 * trace_multiplying_us(call) / us : 0);
    }
}

static void draw_title(struct picture *picture, int rank) {
    const struct trace_rank *from = &picture->traces->rank[rank];
    char calls[160];
    write_calls(picture->traces, rank, calls, sizeof calls);
    svg_text(picture->file, LEFT, picture->y + 14, "",
             "rank %d: %spulled %.2f MB from peers, pushed %.2f MB to them; %d of %d multiprocessors are shown", rank,
             calls, (double)(from->call[TRACE_FORWARD].bytes_pulled + from->call[TRACE_BACKWARD].bytes_pulled) * 1e-6,
             (double)(from->call[TRACE_FORWARD].bytes_pushed + from->call[TRACE_BACKWARD].bytes_pushed) * 1e-6,
             rows_of(picture->traces, rank), from->whole.multiprocessors);
    if (from->whole.lost > 0)
        svg_text(picture->file, LEFT + PLOT, picture->y + 14, "lost end", "%lld events were not kept",
                 (long long)from->whole.lost);
    picture->y += TITLE;
}

static void draw_strip(struct picture *picture, const char *what, const char *top) {
    double base = picture->y + STRIP;
    svg_line(picture->file, LEFT, picture->y, LEFT + PLOT, picture->y, "light");
    svg_line(picture->file, LEFT, base, LEFT + PLOT, base, "");
    svg_text(picture->file, LEFT - 8, picture->y + 9, "small end", "%s", top);
    svg_text(picture->file, LEFT - 8, base - 12, "small end", "%s", what);
    svg_text(picture->file, LEFT - 8, base, "small end faint", "0");
    picture->y = base + STRIP_GAP;
}

static void draw_rates(struct picture *picture, int rank) {
    struct trace_rates rates;
    char top[32];
    double step = PLOT / TRACE_STEPS;
    trace_rates_of(picture->traces, rank, &rates);
    svg_area(picture->file, LEFT, picture->y + STRIP, step, STRIP, rates.multiplying, TRACE_STEPS, "up");
    draw_strip(picture, "multiplying", "100 %");
    if (picture->speed <= 0)
        return;
    double scale = STRIP / picture->speed;
    svg_area(picture->file, LEFT, picture->y + STRIP, step, scale, rates.pushed, TRACE_STEPS, "pushed");
    svg_area(picture->file, LEFT, picture->y + STRIP, step, scale, rates.pulled, TRACE_STEPS, "pulled");
    snprintf(top, sizeof top, "%.3g GB/s", picture->speed);
    draw_strip(picture, "over the link", top);
}

/* On the first rank where it does; INT64_MAX: on none. */
static int64_t call_begins_ns(const struct traces *traces, enum trace_pass pass) {
    int64_t begin_ns = INT64_MAX;
    for (int r = 0; r < traces->problem->world; r++) {
        const mmoe_trace *trace = &traces->rank[r].call[pass].trace;
        begin_ns = trace->count > 0 && trace->begin_ns < begin_ns ? trace->begin_ns : begin_ns;
    }
    return begin_ns;
}

/* Where calls begin, from `top` down to here. */
static void draw_begins(const struct picture *picture, double top) {
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        int64_t begin_ns = call_begins_ns(picture->traces, (enum trace_pass)pass);
        if (begin_ns < INT64_MAX)
            svg_line(picture->file, x_of(picture, begin_ns), top, x_of(picture, begin_ns), picture->y, "begin");
    }
}

static void draw_rank(struct picture *picture, int rank) {
    draw_title(picture, rank);
    double top = picture->y;
    draw_rates(picture, rank);
    draw_rows(picture, rank);
    draw_begins(picture, top);
    picture->y += RANK_GAP;
}

/* ---- The whole ---- */

static double height_of(const struct picture *picture) {
    double height = HEAD + AXIS;
    int strips = picture->speed > 0 ? 2 : 1;
    for (int r = 0; r < picture->traces->problem->world; r++)
        height += TITLE + strips * (STRIP + STRIP_GAP) + rows_of(picture->traces, r) * ROW + RANK_GAP;
    return height;
}

static const char *subject_of(const struct traces *traces) {
    if (!traces_have(traces, TRACE_BACKWARD))
        return "A forward";
    return traces_have(traces, TRACE_FORWARD) ? "Forward and backward of a layer" : "A backward";
}

/* Whether a box of its class can be in the picture: each kind of product is one call's, gate and up both's. */
static bool is_used(const struct traces *traces, const struct lane *lane) {
    uint64_t of_backward = KIND(MULTIPLY_DGATE_UP) | KIND(MULTIPLY_DX) | KIND(MULTIPLY_WGRAD);
    if (lane->kinds == KIND(MULTIPLY_GATE_UP))
        return traces_have(traces, TRACE_FORWARD) || traces->problem->options->keep == MMOE_KEEP_PLAN;
    if (lane->kinds == KIND(MULTIPLY_DOWN))
        return traces_have(traces, TRACE_FORWARD);
    return (lane->kinds & of_backward) == 0 || traces_have(traces, TRACE_BACKWARD);
}

static void draw_legend(const struct picture *picture) {
    double x = LEFT, y = LEGEND;
    for (int l = 0; l < LANES; l++) {
        if (!lanes[l].label || !is_used(picture->traces, &lanes[l]))
            continue;
        double width = svg_text_width(lanes[l].label) + 38;
        if (x + width > LEFT + PLOT) {
            x = LEFT;
            y += LINE;
        }
        svg_box(picture->file, x, y, 12, 12, lanes[l].class);
        svg_text(picture->file, x + 17, y + 10, "", "%s", lanes[l].label);
        x += width;
    }
}

static void draw_head(const struct picture *picture) {
    const struct problem *problem = picture->traces->problem;
    const struct options *options = problem->options;
    char routing[64];
    svg_text(picture->file, LEFT, 28, "large",
             "%s over %d rank%s: %s%shidden %lld, intermediate %lld, %lld experts, "
             "top-%lld",
             subject_of(picture->traces), problem->world, problem->world == 1 ? "" : "s",
             options->preset ? options->preset->name : "", options->preset ? ", " : "",
             (long long)problem->layer.hidden, (long long)problem->layer.intermediate,
             (long long)problem->layer.experts, (long long)problem->layer.top_k);
    svg_text(picture->file, LEFT, 48, "faint",
             "%lld tokens in all, routing %s; a row is a multiprocessor: above what its "
             "consumers do, below what it pulls, and what it stores, pushes and sums meanwhile",
             (long long)problem->first[problem->world], routing_text(options, routing));
    draw_legend(picture);
    for (int pass = 0; pass < TRACE_PASSES; pass++) {
        int64_t begin_ns = call_begins_ns(picture->traces, (enum trace_pass)pass);
        if (begin_ns < INT64_MAX)
            svg_text(picture->file, x_of(picture, begin_ns), HEAD - 3, "bold", "%s", trace_pass_name[pass]);
    }
}

/* Under all else. */
static void draw_axis(const struct picture *picture, double length_us) {
    double tick = svg_tick(length_us, 14), base = height_of(picture) - AXIS - RANK_GAP + 8;
    for (int i = 0; i * tick <= length_us; i++) {
        double x = LEFT + picture->unit * i * tick;
        svg_line(picture->file, x, HEAD, x, base, "light");
        svg_text(picture->file, x, base + 16, "middle", i == 0 ? "0 \302\265s" : "%g", i * tick);
    }
}

void trace_write_svg(FILE *file, const void *traces) {
    struct picture picture = {.file = file, .traces = traces, .y = HEAD};
    double length_us = trace_us(picture.traces, picture.traces->end_ns);
    length_us = length_us > 0 ? length_us : 1;
    picture.unit = PLOT / length_us;
    for (int r = 0; r < picture.traces->problem->world; r++) {
        struct trace_rates rates;
        trace_rates_of(picture.traces, r, &rates);
        double highest = trace_highest_rate(&rates);
        picture.speed = highest > picture.speed ? highest : picture.speed;
    }
    svg_begin(file, WIDTH, height_of(&picture), "Timeline of a layer", style);
    draw_head(&picture);
    draw_axis(&picture, length_us);
    for (int r = 0; r < picture.traces->problem->world; r++)
        draw_rank(&picture, r);
    svg_end(file);
}
