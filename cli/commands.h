/* The subcommands. Each takes its arguments, the first of which is its name for messages, and returns an exit code. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int command_run(int argc, char **argv);
int command_check(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_trace(int argc, char **argv);
int command_info(int argc, char **argv);

/* The end of every help text. */
#define EXIT_CODES_HELP                                                                                                \
    "\v"                                                                                                               \
    "Exit codes: 0 all is well; 1 `check` found an error past its bound; 2 bad usage or input, nothing was written; "  \
    "3 the machine or a rank failed.\n\nmegamoe(1) says more."

#endif
