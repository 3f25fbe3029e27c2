/* The options that every subcommand takes, as they were given. What they mean together is problem.h's matter. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "megamoe.h"
#include "presets.h"

enum routing_kind { ROUTING_UNIFORM, ROUTING_ZIPF, ROUTING_ONE, ROUTING_FILE };

/* The tensors that may come from a file. */
enum input { INPUT_X, INPUT_DY, INPUT_IDS, INPUT_WEIGHTS, INPUT_GATE, INPUT_UP, INPUT_DOWN, INPUTS };

#define NOT_GIVEN (-1)

struct options {
    const char *command; /* "run" and so on */

    const struct preset *preset; /* or NULL */
    int64_t scale, hidden, intermediate, experts, top_k;
    int64_t ranks;
    int64_t tokens[MMOE_MAX_WORLD];
    int tokens_given; /* 0, 1: the same for every rank, or how many ranks were listed */

    enum routing_kind routing;
    bool routing_given;
    double zipf;               /* S of zipf:S */
    int64_t hot_expert;        /* E of one:E */
    const char *input[INPUTS]; /* file names, or NULL */

    mmoe_weight_on weight_on;
    mmoe_combine combine;
    double limit;
    mmoe_keep keep;
    int64_t capacity;
    bool drop;

    const char *backend; /* "cpu" unless given, or where the command has another default */
    int64_t threads;
    uint64_t seed;
    bool json, progress;

    /* Of single commands */
    bool forward, backward;     /* the one alone: run, check; trace */
    const char *save;           /* run */
    double bound;               /* check */
    int64_t iterations, warmup; /* bench */
    const char *output;         /* bench, trace */
    const char *draw;           /* bench */
    int64_t records, rows;      /* trace */
};

extern const char *const input_option[INPUTS]; /* "--x" and so on */

/* Reads the arguments of one subcommand, whose `command`, `forward` and default `backend` are set; argv[0] is its
 * name for messages. On a bad one says why and returns EXIT_INPUT. `own` are the command's own options, of those with a
 * KEY_ below, or NULL. */
int options_read(struct options *options, const struct argp_option *own, const char *help, int argc, char **argv);

/* Numbers for the options of single commands, as keys of their argp_option. */
enum {
    KEY_SAVE = 512,
    KEY_FORWARD,
    KEY_ONLY,
    KEY_BOUND,
    KEY_ITERATIONS,
    KEY_WARMUP,
    KEY_OUTPUT,
    KEY_DRAW,
    KEY_RECORDS,
    KEY_ROWS
};

/* Reads a decimal integer from first to last out of a whole string. */
bool read_integer(const char *text, int64_t first, int64_t last, int64_t *value);

#endif
