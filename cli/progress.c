/* Progress: a thread of its own looks at the counters, so that one long call shows its seconds too. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#define QUIET_SECONDS 2.0
#define BAR 30

static void show(struct progress *progress, double seconds) {
    const char *label = atomic_load(&progress->label);
    int64_t done = atomic_load(&progress->done), total = atomic_load(&progress->total);
    const char *before = progress->terminal ? "\r\033[K" : "", *after = progress->terminal ? "" : "\n";
    if (total > 0) {
        static const char full[] = "##############################", empty[] = "..............................";
        int filled = (int)(done >= total ? BAR : done * BAR / total);
        fprintf(stderr, "%s%s [%.*s%.*s] %lld/%lld, %.0f s%s", before, label, filled, full, BAR - filled, empty,
                (long long)done, (long long)total, seconds, after);
    } else {
        fprintf(stderr, "%s%s, %.0f s%s", before, label, seconds, after);
    }
}

static void *watch(void *argument) {
    struct progress *progress = argument;
    bool shown = false;
    pthread_mutex_lock(&progress->lock);
    while (!progress->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 500000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!progress->terminal) /* every line stays: fewer of them */
            until.tv_sec += 1;
        pthread_cond_timedwait(&progress->wake, &progress->lock, &until);
        double seconds = clock_now() - progress->start;
        if (!progress->stop && seconds > QUIET_SECONDS) {
            show(progress, seconds);
            shown = true;
        }
    }
    pthread_mutex_unlock(&progress->lock);
    if (shown && progress->terminal)
        fputs("\r\033[K", stderr);
    return NULL;
}

void progress_start(struct progress *progress, bool on) {
    *progress = (struct progress){.terminal = isatty(STDERR_FILENO), .start = clock_now(), .label = "starting"};
    pthread_mutex_init(&progress->lock, NULL);
    pthread_cond_init(&progress->wake, NULL);
    if (on)
        progress->on = pthread_create(&progress->thread, NULL, watch, progress) == 0;
}

void progress_label(struct progress *progress, const char *label, int64_t total) {
    atomic_store(&progress->total, 0);
    atomic_store(&progress->done, 0);
    atomic_store(&progress->label, label);
    atomic_store(&progress->total, total);
}

void progress_step(struct progress *progress) {
    atomic_fetch_add(&progress->done, 1);
}

void progress_stop(struct progress *progress) {
    pthread_mutex_lock(&progress->lock);
    progress->stop = true;
    pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    if (progress->on)
        pthread_join(progress->thread, NULL);
    pthread_cond_destroy(&progress->wake);
    pthread_mutex_destroy(&progress->lock);
}
