/* What the ranks must agree on. */
#include "agreement.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "random.h"
#include "routing.h"

static uint64_t digest(const void *data, size_t bytes) {
    const char *at = data;
    uint64_t hash = random_mix(bytes + 1), word;
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = random_mix(hash ^ word) + 1;
    }
    word = 0;
    memcpy(&word, at, bytes);
    return random_mix(hash ^ word);
}

/* ---- One rank's terms ---- */

struct writer {
    struct agreement *agreement;
    int terms;
};

static struct agreement_term *add(struct writer *writer, const char *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static struct agreement_term *add(struct writer *writer, const char *option, const char *format, ...) {
    struct agreement_term *term = &writer->agreement->term[writer->terms++];
    char text[PATH_MAX]; /* also holds the tokens of all ranks */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(term->option, sizeof term->option, "%s", option);
    snprintf(term->value, sizeof term->value, "%.*s", (int)sizeof term->value - 1, text);
    term->digest = digest(text, strlen(text));
    return term;
}

static void add_integer(struct writer *writer, const char *option, int64_t value) {
    add(writer, option, "%lld", (long long)value);
}

static void add_layer(struct writer *writer, const mmoe_layer_config *layer) {
    add_integer(writer, "--hidden", layer->hidden);
    add_integer(writer, "--intermediate", layer->intermediate);
    add_integer(writer, "--experts", layer->experts);
    add_integer(writer, "--top-k", layer->top_k);
    add(writer, "--weight-on", "%s", layer->weight_on == MMOE_WEIGHT_ON_INPUT ? "input" : "output");
    add(writer, "--combine", "%s", layer->combine == MMOE_COMBINE_GROUPED ? "grouped" : "exact");
    add(writer, "--limit", "%.9g", (double)layer->limit);
    if (layer->capacity_policy == MMOE_CAPACITY_FIXED)
        add_integer(writer, "--capacity", layer->capacity);
    else
        add(writer, "--capacity", "not given");
    add(writer, "--drop", "%s", layer->drop ? "given" : "not given");
}

static void add_tokens(struct writer *writer, const struct problem *problem) {
    char text[MMOE_MAX_WORLD * 8]; /* MMOE_MAX_TOKENS has seven digits */
    size_t used = 0;
    for (int r = 0; r < problem->world; r++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%lld", r ? "," : "", (long long)problem->tokens[r]);
    add(writer, "--tokens", "%s", text);
}

static void add_file(struct writer *writer, const struct problem *problem, enum input input) {
    const struct npy_file *file = &problem->file[input];
    const char *name = problem->options->input[input];
    struct agreement_term *term = add(writer, input_option[input], "%s", name ? name : "not given");
    if (file->map)
        term->digest = digest(file->map, file->bytes);
}

void agreement_of(const struct problem *problem, struct agreement *agreement) {
    const struct options *options = problem->options;
    struct writer writer = {.agreement = agreement};
    char routing[64];
    *agreement = (struct agreement){0};
    add(&writer, "the command", "%s", options->command);
    add_layer(&writer, &problem->layer);
    add_tokens(&writer, problem);
    add(&writer, "--routing", "%s", routing_text(options, routing));
    add(&writer, "--routing", "zipf:%.17g", options->zipf); /* all digits */
    add(&writer, "--seed", "%llu", (unsigned long long)options->seed);
    for (int i = 0; i < INPUTS; i++)
        add_file(&writer, problem, (enum input)i);
    add(&writer, "--keep", "%s", options->keep == MMOE_KEEP_ROWS ? "rows" : "plan");
    add(&writer, "--save", "%s", options->save ? options->save : "not given");
    add_integer(&writer, "--iterations", options->iterations);
    add_integer(&writer, "--warmup", options->warmup);
}

/* ---- All ranks ---- */

bool agreement_holds(const struct agreement *all, int world, char *error, size_t error_bytes) {
    for (int t = 0; t < AGREEMENT_TERMS; t++)
        for (int r = 1; r < world; r++) {
            const struct agreement_term *first = &all[0].term[t], *other = &all[r].term[t];
            if (first->digest == other->digest)
                continue;
            snprintf(error, error_bytes, "%s is '%s' on rank 0 and '%s' on rank %d, expected the same on all ranks%s",
                     first->option, first->value, other->value, r,
                     strcmp(first->value, other->value) ? "" : ", but the two differ");
            return false;
        }
    return true;
}
