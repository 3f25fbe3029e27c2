/* A line on stderr that says what is going on, for work that takes more than two seconds. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool on;       /* the thread runs */
    bool terminal; /* rewrite one line; else a line at a time */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    double start;
    _Atomic(const char *) label;
    _Atomic int64_t done, total; /* total 0: no count is known */
};

/* Nothing is shown unless `on`. */
void progress_start(struct progress *progress, bool on);

/* From any thread: what is being done now (a constant string), and how many steps it has. */
void progress_label(struct progress *progress, const char *label, int64_t total);
void progress_step(struct progress *progress);

/* Clears the line. */
void progress_stop(struct progress *progress);

#endif
