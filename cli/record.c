/* JSON records and common lines of text. */
#include "record.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "message.h"
#include "output.h"
#include "routing.h"

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}

static json_t *layer_record(const struct problem *problem) {
    const mmoe_layer_config *layer = &problem->layer;
    bool fixed = layer->capacity_policy == MMOE_CAPACITY_FIXED;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:s, s:s, s:f, s:o, s:b}", "hidden", (json_int_t)layer->hidden, "intermediate",
        (json_int_t)layer->intermediate, "experts", (json_int_t)layer->experts, "top_k", (json_int_t)layer->top_k,
        "weight_on", layer->weight_on == MMOE_WEIGHT_ON_INPUT ? "input" : "output", "combine",
        layer->combine == MMOE_COMBINE_GROUPED ? "grouped" : "exact", "limit", (double)layer->limit, "capacity",
        fixed ? json_integer((json_int_t)layer->capacity) : json_null(), "drop", layer->drop != 0);
}

json_t *record_start(const struct problem *problem) {
    const struct options *options = problem->options;
    char routing[64], seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->seed); /* JSON's integers end at 2^63 */
    return json_pack(
        "{s:s, s:s, s:o, s:i, s:o, s:i, s:o, s:s, s:s, s:s, s:s, s:i}", "megamoe", mmoe_version(), "command",
        options->command, "preset", text_or_null(options->preset ? options->preset->name : NULL), "scale",
        options->scale == NOT_GIVEN ? 1 : (int)options->scale, "layer", layer_record(problem), "ranks", problem->world,
        "tokens", record_integers(problem->tokens, problem->world), "routing", routing_text(options, routing), "seed",
        seed, "keep", options->keep == MMOE_KEEP_ROWS ? "rows" : "plan", "backend", options->backend, "threads",
        (int)options->threads);
}

void record_print_problem(const struct problem *problem, FILE *file) {
    const mmoe_layer_config *layer = &problem->layer;
    const struct options *options = problem->options;
    char routing[64];
    fprintf(file, "layer  ");
    if (options->preset)
        fprintf(file, "%s 1/%lld: ", options->preset->name,
                (long long)(options->scale == NOT_GIVEN ? 1 : options->scale));
    fprintf(file, "hidden %lld, intermediate %lld, experts %lld, top-%lld, weight on %s", (long long)layer->hidden,
            (long long)layer->intermediate, (long long)layer->experts, (long long)layer->top_k,
            layer->weight_on == MMOE_WEIGHT_ON_INPUT ? "input" : "output");
    if (layer->combine == MMOE_COMBINE_GROUPED)
        fprintf(file, ", grouped combine");
    if (layer->limit > 0)
        fprintf(file, ", limit %g", (double)layer->limit);
    if (layer->capacity_policy == MMOE_CAPACITY_FIXED)
        fprintf(file, ", capacity %lld%s", (long long)layer->capacity, layer->drop ? " with drop" : "");
    fprintf(file, "\nbatch  %lld tokens over %d rank%s, routing %s, seed %llu\n",
            (long long)problem->first[problem->world], problem->world, problem->world == 1 ? "" : "s",
            routing_text(options, routing), (unsigned long long)options->seed);
}

json_t *record_real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *record_integers(const int64_t *values, int64_t count) {
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer((json_int_t)values[i]));
    return array;
}

int record_print(json_t *record) {
    if (!record)
        return complain_memory("the record");
    int failed = json_dumpf(record, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(record);
    return failed ? complain(EXIT_RUN, "the record can't be written to stdout: %s", strerror(errno)) : 0;
}

static void write_text(FILE *file, const void *record) {
    json_dumpf(record, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', file);
}

int record_write(const json_t *record, const char *path) {
    return output_write(path, write_text, record);
}

const char *record_bytes_text(double bytes, char text[24]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 24, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}
