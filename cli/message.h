/* What the command says when something is wrong, and the exit codes that go with it. */
#ifndef CLI_MESSAGE_H
#define CLI_MESSAGE_H

enum exit_code {
    EXIT_GOOD = 0,  /* done, and right */
    EXIT_CHECK = 1, /* `check` found an error past its bound */
    EXIT_INPUT = 2, /* bad usage or bad input; nothing was written */
    EXIT_RUN = 3    /* the machine or a rank failed */
};

/* Says one sentence on stderr after the command's name, and returns `code`, so that a check reads
 * `return complain(EXIT_INPUT, "...", ...);`. */
int complain(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Out of memory while asking for `what`. */
int complain_memory(const char *what);

#endif
