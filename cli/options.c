/* Reading the command line. Every option has one function here that checks its value. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

const char *const input_option[INPUTS] = {
    [INPUT_X] = "--x",       [INPUT_DY] = "--dy", [INPUT_IDS] = "--ids",   [INPUT_WEIGHTS] = "--weights",
    [INPUT_GATE] = "--gate", [INPUT_UP] = "--up", [INPUT_DOWN] = "--down",
};

enum {
    KEY_PRESET = 256,
    KEY_SCALE,
    KEY_HIDDEN,
    KEY_INTERMEDIATE,
    KEY_EXPERTS,
    KEY_TOP_K,
    KEY_RANKS,
    KEY_TOKENS,
    KEY_ROUTING,
    KEY_WEIGHT_ON,
    KEY_COMBINE,
    KEY_LIMIT,
    KEY_KEEP,
    KEY_CAPACITY,
    KEY_DROP,
    KEY_BACKEND,
    KEY_THREADS,
    KEY_SEED,
    KEY_JSON,
    KEY_PROGRESS,
    KEY_INPUT, /* + enum input */
};

static const struct argp_option common[] = {
    {NULL, 0, NULL, 0, "Sizes:", 1},
    {"preset", KEY_PRESET, "NAME", 0, "the MoE layer of a published model; 'megamoe info' lists the names", 1},
    {"scale", KEY_SCALE, "N", 0, "shrink the preset: H, I, E and the default tokens become 1/N", 1},
    {"hidden", KEY_HIDDEN, "H", 0, "hidden size (default 256)", 1},
    {"intermediate", KEY_INTERMEDIATE, "I", 0, "intermediate size of an expert (default 128)", 1},
    {"experts", KEY_EXPERTS, "E", 0, "experts in all, a multiple of the ranks (default 16)", 1},
    {"top-k", KEY_TOP_K, "K", 0, "experts of a token (default 4)", 1},
    {"ranks", KEY_RANKS, "W", 0,
     "ranks, as threads of this process (default 1; without it, and with RANK and WORLD_SIZE in the environment, this "
     "process is one rank)",
     1},
    {"tokens", KEY_TOKENS, "N|N0,N1,...", 0, "tokens a rank brings, or those of each rank (default 64)", 1},
    {NULL, 0, NULL, 0, "Data:", 2},
    {"routing", KEY_ROUTING, "HOW", 0,
     "uniform (default); zipf:S, popularity of experts 1, 2^-S, 3^-S ...; one:E, all slots to expert E; file, the ids "
     "of --ids",
     2},
    {"ids", KEY_INPUT + INPUT_IDS, "FILE", 0, "expert ids [T,K], <i4 or <i8, split over the ranks", 2},
    {"weights", KEY_INPUT + INPUT_WEIGHTS, "FILE", 0, "router weights [T,K], <f4 or <f8", 2},
    {"x", KEY_INPUT + INPUT_X, "FILE", 0, "token rows [T,H], <u2 (the bits of bf16), <f4 or <f8", 2},
    {"dy", KEY_INPUT + INPUT_DY, "FILE", 0, "gradient of the output [T,H], types as for --x", 2},
    {"gate", KEY_INPUT + INPUT_GATE, "FILE", 0, "W1 of all experts [E,I,H], types as for --x", 2},
    {"up", KEY_INPUT + INPUT_UP, "FILE", 0, "W3 of all experts [E,I,H], types as for --x", 2},
    {"down", KEY_INPUT + INPUT_DOWN, "FILE", 0, "W2 of all experts [E,H,I], types as for --x", 2},
    {"seed", KEY_SEED, "N", 0, "seed of all data that no file gives (default 0)", 2},
    {NULL, 0, NULL, 0, "The layer:", 3},
    {"weight-on", KEY_WEIGHT_ON, "output|input", 0, "where the router weight goes (default output)", 3},
    {"combine", KEY_COMBINE, "exact|grouped", 0, "what travels back: each result, or a sum a rank (default exact)", 3},
    {"limit", KEY_LIMIT, "L", 0, "limit of the activation (default 0: none)", 3},
    {"keep", KEY_KEEP, "plan|rows", 0, "what forward keeps for backward (default rows)", 3},
    {"capacity", KEY_CAPACITY, "ROWS", 0, "fixed buffers for so many received rows (default: they grow)", 3},
    {"drop", KEY_DROP, NULL, 0, "drop the rows past the capacity", 3},
    {NULL, 0, NULL, 0, "Running:", 4},
    {"backend", KEY_BACKEND, "NAME", 0, "the backend (default cpu)", 4},
    {"threads", KEY_THREADS, "N", 0, "CPU threads of each rank (default: its share of the cores)", 4},
    {"json", KEY_JSON, NULL, 0, "print one JSON object instead of text", 4},
    {"progress", KEY_PROGRESS, NULL, 0, "show progress even when stderr is no terminal", 4},
    {0},
};

bool read_integer(const char *text, int64_t first, int64_t last, int64_t *value) {
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < first || number > last || text[0] == ' ' || text[0] == '+')
        return false;
    *value = number;
    return true;
}

static int bad(const char *option, const char *value, const char *expected) {
    return complain(EXIT_INPUT, "--%s is '%s', expected %s", option, value, expected);
}

static int read_count(const char *option, const char *text, int64_t first, int64_t last, int64_t *value) {
    char expected[80];
    if (read_integer(text, first, last, value))
        return 0;
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)first, (long long)last);
    return bad(option, text, expected);
}

/* A finite number from `first` up. */
static bool read_number(const char *text, double first, double *value) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || number < first || text[0] == ' ')
        return false;
    *value = number;
    return true;
}

static int read_preset(struct options *options, const char *text) {
    options->preset = preset_find(text);
    if (options->preset)
        return 0;
    char names[512] = "one of ";
    for (const struct preset *preset = presets; preset->name; preset++) {
        strcat(names, preset->name);
        strcat(names, preset[1].name ? ", " : "");
    }
    return bad("preset", text, names);
}

static int read_tokens(struct options *options, const char *text) {
    static const char expected[] = "a number of tokens from 0 to 1048576, or up to 64 of them with commas between";
    char item[24];
    options->tokens_given = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (length >= sizeof item || options->tokens_given == MMOE_MAX_WORLD)
            return bad("tokens", text, expected);
        memcpy(item, at, length);
        item[length] = '\0';
        if (!read_integer(item, 0, MMOE_MAX_TOKENS, &options->tokens[options->tokens_given++]))
            return bad("tokens", text, expected);
        at += length;
        if (!*at)
            return 0;
    }
}

static int read_routing(struct options *options, const char *text) {
    bool good = true;
    options->routing_given = true;
    if (!strcmp(text, "uniform")) {
        options->routing = ROUTING_UNIFORM;
    } else if (!strcmp(text, "file")) {
        options->routing = ROUTING_FILE;
    } else if (!strncmp(text, "zipf:", 5)) {
        options->routing = ROUTING_ZIPF;
        good = read_number(text + 5, 0, &options->zipf) && options->zipf <= 16;
    } else if (!strncmp(text, "one:", 4)) {
        options->routing = ROUTING_ONE;
        good = read_integer(text + 4, 0, MMOE_MAX_EXPERTS - 1, &options->hot_expert);
    } else {
        good = false;
    }
    return good ? 0
                : bad("routing", text,
                      "uniform, zipf:S with S from 0 to 16, one:E with the number of an expert, or file");
}

/* One of two words: *second becomes whether it is the second. */
static int read_choice(const char *option, const char *text, const char *first, const char *last, bool *second) {
    *second = !strcmp(text, last);
    if (*second || !strcmp(text, first))
        return 0;
    char expected[64];
    snprintf(expected, sizeof expected, "%s or %s", first, last);
    return bad(option, text, expected);
}

static int read_seed(struct options *options, const char *text) {
    char *end;
    errno = 0;
    unsigned long long seed = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno)
        return bad("seed", text, "an integer from 0 to 18446744073709551615");
    options->seed = seed;
    return 0;
}

static int read_backend(struct options *options, const char *text) {
    char names[256] = "one of";
    for (int b = 0; b < mmoe_backend_count(); b++) {
        int present;
        const char *name = mmoe_backend(b, &present, NULL);
        if (!strcmp(name, text)) {
            options->backend = name;
            return 0;
        }
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s %s", b ? "," : "", name);
    }
    return bad("backend", text, names);
}

static int read_file_name(struct options *options, enum input input, const char *text) {
    if (!*text)
        return bad(input_option[input] + 2, text, "the name of a file");
    options->input[input] = text;
    return 0;
}

/* Options of sizes; NOT_HERE for any other. */
#define NOT_HERE (-1)
static int read_size(struct options *options, int key, const char *text) {
    switch (key) {
    case KEY_PRESET:
        return read_preset(options, text);
    case KEY_SCALE:
        return read_count("scale", text, 1, 1024, &options->scale);
    case KEY_HIDDEN:
        return read_count("hidden", text, 1, MMOE_MAX_HIDDEN, &options->hidden);
    case KEY_INTERMEDIATE:
        return read_count("intermediate", text, 1, MMOE_MAX_INTERMEDIATE, &options->intermediate);
    case KEY_EXPERTS:
        return read_count("experts", text, 1, MMOE_MAX_EXPERTS, &options->experts);
    case KEY_TOP_K:
        return read_count("top-k", text, 1, MMOE_MAX_TOP_K, &options->top_k);
    case KEY_RANKS:
        return read_count("ranks", text, 1, MMOE_MAX_WORLD, &options->ranks);
    case KEY_TOKENS:
        return read_tokens(options, text);
    default:
        return NOT_HERE;
    }
}

static int read_layer(struct options *options, int key, const char *text) {
    bool second = false;
    int code = 0;
    switch (key) {
    case KEY_WEIGHT_ON:
        code = read_choice("weight-on", text, "output", "input", &second);
        options->weight_on = second ? MMOE_WEIGHT_ON_INPUT : MMOE_WEIGHT_ON_OUTPUT;
        return code;
    case KEY_COMBINE:
        code = read_choice("combine", text, "exact", "grouped", &second);
        options->combine = second ? MMOE_COMBINE_GROUPED : MMOE_COMBINE_EXACT;
        return code;
    case KEY_KEEP:
        code = read_choice("keep", text, "plan", "rows", &second);
        options->keep = second ? MMOE_KEEP_ROWS : MMOE_KEEP_PLAN;
        return code;
    case KEY_LIMIT:
        return read_number(text, 0, &options->limit) && options->limit <= 1e30
                   ? 0
                   : bad("limit", text, "a number from 0 (no limit) to 1e30");
    case KEY_CAPACITY:
        return read_count("capacity", text, 0, INT32_MAX, &options->capacity);
    case KEY_DROP:
        options->drop = true;
        return 0;
    default:
        return NOT_HERE;
    }
}

static int read_running(struct options *options, int key, const char *text) {
    switch (key) {
    case KEY_ROUTING:
        return read_routing(options, text);
    case KEY_SEED:
        return read_seed(options, text);
    case KEY_BACKEND:
        return read_backend(options, text);
    case KEY_THREADS:
        return read_count("threads", text, 1, 1024, &options->threads);
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_PROGRESS:
        options->progress = true;
        return 0;
    default:
        if (key >= KEY_INPUT && key < KEY_INPUT + INPUTS)
            return read_file_name(options, (enum input)(key - KEY_INPUT), text);
        return NOT_HERE;
    }
}

static int read_only(struct options *options, const char *text) {
    int code = read_choice("only", text, "forward", "backward", &options->backward);
    options->forward = !options->backward;
    return code;
}

static int read_own(struct options *options, int key, char *text) {
    switch (key) {
    case KEY_SAVE:
        options->save = text;
        return *text ? 0 : bad("save", text, "the name of a folder");
    case KEY_FORWARD:
        options->forward = true;
        return 0;
    case KEY_ONLY:
        return read_only(options, text);
    case KEY_OUTPUT:
        options->output = text;
        return *text ? 0 : bad("output", text, "the name of a file");
    case KEY_DRAW:
        options->draw = text;
        return *text ? 0 : bad("draw", text, "the name of a file");
    case KEY_BOUND:
        return read_number(text, 0, &options->bound) ? 0 : bad("bound", text, "a number of at least 0");
    case KEY_ITERATIONS:
        return read_count("iterations", text, 1, 10000, &options->iterations);
    case KEY_WARMUP:
        return read_count("warmup", text, 0, 10000, &options->warmup);
    case KEY_RECORDS:
        return read_count("records", text, 1, 1 << 20, &options->records);
    case KEY_ROWS:
        return read_count("rows", text, 1, 1024, &options->rows);
    default:
        return NOT_HERE;
    }
}

static error_t done(int code) {
    if (code == NOT_HERE)
        return ARGP_ERR_UNKNOWN;
    if (code)
        exit(code);
    return 0;
}

static error_t parse_common(int key, char *text, struct argp_state *state) {
    struct options *options = state->input;
    int code = read_size(options, key, text);
    if (code == NOT_HERE)
        code = read_layer(options, key, text);
    if (code == NOT_HERE)
        code = read_running(options, key, text);
    return done(code);
}

static error_t parse_own(int key, char *text, struct argp_state *state) {
    struct options *options = state->input;
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = options;
    if (key == ARGP_KEY_ARG)
        exit(complain(EXIT_INPUT, "'%s' is no option, expected options alone after '%s'", text, options->command));
    return done(read_own(options, key, text));
}

/* What no single option can be wrong about. */
static int check_together(const struct options *options) {
    if (options->scale != NOT_GIVEN && !options->preset)
        return complain(EXIT_INPUT, "--scale is %lld, expected a --preset that it shrinks", (long long)options->scale);
    if (options->drop && options->capacity == NOT_GIVEN)
        return complain(EXIT_INPUT, "--drop is given without --capacity, expected the rows that a rank keeps");
    if (options->routing == ROUTING_FILE && !options->input[INPUT_IDS])
        return complain(EXIT_INPUT, "--routing is 'file' without --ids, expected the name of the file");
    if (options->routing_given && options->routing != ROUTING_FILE && options->input[INPUT_IDS])
        return complain(EXIT_INPUT, "--ids is '%s' beside another --routing, expected --routing file or none",
                        options->input[INPUT_IDS]);
    return 0;
}

int options_read(struct options *options, const struct argp_option *own, const char *help, int argc, char **argv) {
    *options = (struct options){
        .command = options->command,
        .forward = options->forward,
        .backend = options->backend != NULL ? options->backend : "cpu",
        .scale = NOT_GIVEN,
        .hidden = NOT_GIVEN,
        .intermediate = NOT_GIVEN,
        .experts = NOT_GIVEN,
        .top_k = NOT_GIVEN,
        .ranks = NOT_GIVEN,
        .limit = NOT_GIVEN,
        .keep = MMOE_KEEP_ROWS,
        .capacity = NOT_GIVEN,
        .bound = 5.5e-3,
        .iterations = 5,
        .warmup = 1,
    };
    const struct argp base = {.options = common, .parser = parse_common};
    const struct argp_child children[] = {{&base, 0, NULL, 0}, {0}};
    const struct argp command = {.options = own, .parser = parse_own, .doc = help, .children = children};
    argp_parse(&command, argc, argv, 0, NULL, options);
    if (options->input[INPUT_IDS] && !options->routing_given)
        options->routing = ROUTING_FILE;
    return check_together(options);
}
