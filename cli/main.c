/* megamoe: the library from the command line. This file finds the subcommand. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "megamoe.h"
#include "message.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", command_run},     {"check", command_check}, {"bench", command_bench},
    {"trace", command_trace}, {"info", command_info},
};
#define COMMANDS ((int)(sizeof commands / sizeof commands[0]))

static void print_version(FILE *file, struct argp_state *state) {
    (void)state;
    fprintf(file, "megamoe %s\n", mmoe_version());
}

/* What the options before the subcommand leave over. */
struct rest {
    int argc;
    char **argv;
};

static error_t parse(int key, char *text, struct argp_state *state) {
    struct rest *rest = state->input;
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    (void)text;
    rest->argc = state->argc - state->next + 1;
    rest->argv = state->argv + state->next - 1;
    state->next = state->argc;
    return 0;
}

static int run_command(struct rest rest) {
    char name[64];
    for (int c = 0; c < COMMANDS; c++)
        if (!strcmp(rest.argv[0], commands[c].name)) {
            snprintf(name, sizeof name, "megamoe %s", commands[c].name);
            rest.argv[0] = name;
            return commands[c].run(rest.argc, rest.argv);
        }
    return complain(EXIT_INPUT, "'%s' is no command, expected run, check, bench, trace or info", rest.argv[0]);
}

int main(int argc, char **argv) {
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "COMMAND [OPTION...]",
        .doc = "A mixture-of-experts layer for training, forward and backward, over several ranks.\v"
               "Commands:\n"
               "  run     one layer forward and backward: times, bytes, checksums\n"
               "  check   the same against a float64 reference\n"
               "  bench   its time beside the same matrix products through OpenBLAS alone\n"
               "  trace   a layer on GPUs, recorded: a timeline and a picture of it\n"
               "  info    backends found, presets, the size of every buffer, the plan of a routing\n\n"
               "`megamoe COMMAND --help` lists the options of one.\n"
               "Exit codes: 0 all is well; 1 `check` found an error past its bound; 2 bad usage or input; 3 the "
               "machine or a rank failed. megamoe(1) says more.",
    };
    struct rest rest = {0};
    argp_err_exit_status = EXIT_INPUT;
    argp_program_version_hook = print_version;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &rest);
    if (rest.argc == 0)
        return complain(EXIT_INPUT, "no command is given, expected run, check, bench, trace or info");
    int code = run_command(rest);
    if ((fflush(stdout) || ferror(stdout)) && code != EXIT_RUN)
        code = complain(EXIT_RUN, "stdout can't be written: %s", strerror(errno));
    return code;
}
