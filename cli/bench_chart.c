/* Records of benchmarks as charts; see bench_chart.h. */
#include "bench_chart.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

#include "chart.h"
#include "message.h"
#include "output.h"

/* ---- Reading ---- */

/* The member with these names, one inside the other, ended by NULL. */
static const json_t *member(const json_t *object, const char *const *names) {
    for (; *names && object; names++)
        object = json_object_get(object, *names);
    return object;
}

static double number(const json_t *object, const char *first, const char *second, const char *third) {
    const char *const names[] = {first, second, third, NULL};
    return json_number_value(member(object, names));
}

static const char *text(const json_t *object, const char *first, const char *second) {
    const char *const names[] = {first, second, NULL};
    const char *found = json_string_value(member(object, names));
    return found ? found : "";
}

/* ---- Groups ---- */

/* A group of times, all of which must be there. */
static int add_group(struct chart *chart, const char *path, const char *label, const double values[CHART_SERIES]) {
    struct chart_group *group = chart_add(chart);
    if (!group)
        return complain_memory("a chart");
    snprintf(group->label, sizeof group->label, "%s", label);
    for (int s = 0; s < CHART_SERIES && chart->series[s]; s++) {
        if (!(values[s] > 0))
            return complain(EXIT_INPUT, "--draw is '%s', which has no time for '%s' of '%s'", path, chart->series[s],
                            label);
        group->values[s] = values[s];
    }
    return 0;
}

/* `megamoe bench`. */
static int command_chart(const json_t *record, const char *path, struct chart *chart) {
    static const char *const calls[] = {"forward", "backward"};
    const char *preset = text(record, "preset", NULL);
    double both[CHART_SERIES] = {0};
    int code = 0;
    chart->series[0] = "the layer";
    chart->series[1] = "its matrix products alone, OpenBLAS";
    snprintf(chart->title, sizeof chart->title,
             "%s%shidden %.0f, intermediate %.0f, %.0f experts, top-%.0f, %.0f ranks", preset, *preset ? ": " : "",
             number(record, "layer", "hidden", NULL), number(record, "layer", "intermediate", NULL),
             number(record, "layer", "experts", NULL), number(record, "layer", "top_k", NULL),
             number(record, "ranks", NULL, NULL));
    snprintf(chart->note, sizeof chart->note, "medians of %.0f iterations on %s, %.10s, commit %s",
             number(record, "iterations", NULL, NULL), text(record, "machine", "cpu"), text(record, "date", NULL),
             text(record, "commit", NULL));
    for (int c = 0; c < 2 && !code; c++) {
        const double values[CHART_SERIES] = {1e3 * number(record, calls[c], "seconds", NULL),
                                             1e3 * number(record, "gemm", calls[c], "seconds")};
        code = add_group(chart, path, calls[c], values);
        both[0] += values[0];
        both[1] += values[1];
    }
    return code ? code : add_group(chart, path, "both", both);
}

static void case_label(const json_t *one, const char *call, char *label, size_t bytes) {
    snprintf(label, bytes, "%.0f / %.0f, %.0f experts, top-%.0f, %.0f tokens a rank, routing %s%s: %s",
             number(one, "hidden", NULL, NULL), number(one, "intermediate", NULL, NULL),
             number(one, "experts", NULL, NULL), number(one, "top_k", NULL, NULL), number(one, "tokens", NULL, NULL),
             text(one, "routing", NULL), number(one, "world", NULL, NULL) == 1 ? ", one GPU" : "", call);
}

/* A case of one GPU: forward and backward. */
static int add_layer(struct chart *chart, const char *path, const json_t *one) {
    static const char *const calls[] = {"forward", "backward"};
    char label[128];
    int code = 0;
    for (int c = 0; c < 2 && !code; c++) {
        const double values[CHART_SERIES] = {number(one, "rows", calls[c], NULL),
                                             number(one, "unfused", calls[c], NULL),
                                             number(one, "dense", calls[c], NULL)};
        case_label(one, calls[c], label, sizeof label);
        code = add_group(chart, path, label, values);
    }
    return code;
}

/* One direction of a case of several GPUs; `measured` has its variants. */
static int add_direction(struct chart *chart, const char *path, const json_t *one, const json_t *measured,
                         const char *call, const char *ours) {
    char label[128];
    const double values[CHART_SERIES] = {number(measured, "variants", ours, "milliseconds"),
                                         number(measured, "variants", "unfused", "milliseconds"),
                                         number(measured, "variants", "dense", "milliseconds")};
    case_label(one, call, label, sizeof label);
    return add_group(chart, path, label, values);
}

/* A case of several GPUs: what was measured of it. */
static int add_parallel(struct chart *chart, const char *path, const json_t *one) {
    const json_t *backward = json_object_get(one, "backward");
    int code = 0;
    if (!backward || json_object_get(one, "variants"))
        code = add_direction(chart, path, one, one, "forward", "ours, fixed");
    return code || !backward ? code : add_direction(chart, path, one, backward, "backward", "ours, rows kept");
}

/* Benchmarks of a GPU. */
static int gpu_chart(const json_t *record, const json_t *cases, const char *path, struct chart *chart) {
    const double world = number(record, "world", NULL, NULL);
    size_t index;
    json_t *one;
    int code = 0;
    chart->series[0] = "megamoe";
    chart->series[1] = world > 0 ? "unfused: PyTorch and NCCL" : "unfused: PyTorch";
    chart->series[2] = "dense cuBLAS of the same FLOP";
    snprintf(chart->title, sizeof chart->title, "A mixture-of-experts layer on %.0f GPU%s", world > 0 ? world : 1,
             world > 1 ? "s" : "");
    snprintf(chart->note, sizeof chart->note, "medians, sustained, %s, driver %s, PyTorch %s, %.10s, commit %s",
             text(record, "machine", "gpu"), text(record, "machine", "driver"), text(record, "machine", "torch"),
             text(record, "date", NULL), text(record, "commit", NULL));
    json_array_foreach(cases, index, one) {
        if (code)
            break;
        code = world > 0 ? add_parallel(chart, path, one) : add_layer(chart, path, one);
    }
    return code;
}

/* Fills a zeroed chart. */
static int make_chart(const json_t *record, const char *path, struct chart *chart) {
    const json_t *cases = json_object_get(record, "cases");
    const bool of_layers = json_array_size(cases) > 0 && !json_object_get(json_array_get(cases, 0), "products");
    if (of_layers)
        return gpu_chart(record, cases, path, chart);
    if (json_object_get(record, "gemm"))
        return command_chart(record, path, chart);
    return complain(EXIT_INPUT,
                    "--draw is '%s', expected a record of 'megamoe bench' or of the layers of a GPU's benchmark", path);
}

int bench_draw(const char *path, const char *output) {
    json_error_t error;
    struct chart chart = {.count = 0};
    json_t *record = json_load_file(path, 0, &error);
    if (!record)
        return complain(EXIT_INPUT, "--draw is '%s', which can't be read: %s", path, error.text);
    char *name = output ? NULL : output_name(path, ".svg");
    int code = output || name ? 0 : complain_memory("a file name");
    if (!code)
        code = output_check(output ? output : name);
    if (!code)
        code = make_chart(record, path, &chart);
    if (!code)
        code = output_write(output ? output : name, chart_write_svg, &chart);
    chart_free(&chart);
    free(name);
    json_decref(record);
    return code;
}
