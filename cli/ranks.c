/* Ranks as threads, or this process as one rank. */
#include "ranks.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agreement.h"
#include "meeting.h"
#include "message.h"

struct ranks {
    struct rank rank[MMOE_MAX_WORLD];
    int world;
    struct meeting *meeting; /* of processes; NULL when the ranks are threads */
    pthread_barrier_t barrier;
    const void *mine[MMOE_MAX_WORLD]; /* of a gather under way */
    struct progress progress;
    rank_body *body;
    void *context;
};

int rank_fail(struct rank *rank, int code, const char *format, ...) {
    if (rank->code)
        return rank->code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rank->error, sizeof rank->error, format, arguments);
    va_end(arguments);
    return rank->code = code;
}

/* What the user asked for and can't have is bad input; everything else is a failure of the run. */
static int code_of(mmoe_status status) {
    bool input = status == MMOE_INVALID_ARGUMENT || status == MMOE_UNSUPPORTED || status == MMOE_CAPACITY;
    return input ? EXIT_INPUT : EXIT_RUN;
}

int rank_fail_status(struct rank *rank, mmoe_status status) {
    if (status == MMOE_OK)
        return rank->code;
    if (!rank->code)
        rank->status = status;
    return rank_fail(rank, code_of(status), "%s", mmoe_last_error());
}

/* A rank whose group is broken tells nobody, or it would wait for the one that broke it: the others see it end. */
static int gather_from_processes(struct rank *rank, const void *mine, size_t bytes, void *all) {
    struct ranks *ranks = rank->ranks;
    char error[256];
    mmoe_status broken = mmoe_group_check(rank->group);
    if (broken != MMOE_OK)
        return rank_fail_status(rank, broken);
    char *parts = all ? all : malloc((size_t)ranks->world * bytes);
    if (!parts)
        return rank_fail(rank, EXIT_RUN, "no memory for what the ranks tell");
    if (!meeting_gather(ranks->meeting, mine, bytes, parts, error, sizeof error))
        rank_fail(rank, EXIT_RUN, "%s", error);
    if (!all)
        free(parts);
    return rank->code;
}

int rank_gather(struct rank *rank, const void *mine, size_t bytes, void *all) {
    struct ranks *ranks = rank->ranks;
    if (ranks->meeting)
        return gather_from_processes(rank, mine, bytes, all);
    ranks->mine[rank->index] = mine;
    pthread_barrier_wait(&ranks->barrier);
    for (int r = 0; r < ranks->world && all; r++)
        memcpy((char *)all + (size_t)r * bytes, ranks->mine[r], bytes);
    pthread_barrier_wait(&ranks->barrier);
    return rank->code;
}

bool rank_all_well(struct rank *rank) {
    int codes[MMOE_MAX_WORLD] = {0}, mine = rank->code;
    if (rank_gather(rank, &mine, sizeof mine, codes))
        return false;
    for (int r = 0; r < rank->world; r++)
        if (codes[r]) {
            rank->status = MMOE_REFUSED;
            rank_fail(rank, EXIT_RUN, "rank %d failed", r);
            return false;
        }
    return true;
}

struct progress *rank_progress(struct rank *rank) {
    return &rank->ranks->progress;
}

mmoe_group_config ranks_group_config(const struct problem *problem) {
    mmoe_group_config config = mmoe_group_config_default();
    for (int r = 0; r < problem->world; r++)
        if (problem->tokens[r] > config.max_tokens)
            config.max_tokens = problem->tokens[r];
    config.max_hidden = problem->layer.hidden;
    config.max_top_k = problem->layer.top_k;
    config.max_experts = problem->layer.experts;
    config.threads = (int32_t)problem->options->threads;
    config.backend = problem->options->backend;
    return config;
}

/* ---- Running ---- */

static void *run_thread(void *argument) {
    struct rank *rank = argument;
    rank->ranks->body(rank, rank->ranks->context);
    return NULL;
}

static int run_threads(struct ranks *ranks, const mmoe_group_config *config) {
    mmoe_group *groups[MMOE_MAX_WORLD] = {0};
    pthread_t threads[MMOE_MAX_WORLD];
    mmoe_status status = mmoe_group_create_threads(config, ranks->world, groups);
    if (status != MMOE_OK)
        return complain(code_of(status), "%s", mmoe_last_error());
    for (int r = 0; r < ranks->world; r++)
        ranks->rank[r].group = groups[r];
    pthread_barrier_init(&ranks->barrier, NULL, (unsigned)ranks->world);
    for (int r = 1; r < ranks->world; r++)
        if (pthread_create(&threads[r], NULL, run_thread, &ranks->rank[r]))
            exit(complain(EXIT_RUN, "a thread for rank %d can't be started", r)); /* the others wait for it */
    run_thread(&ranks->rank[0]);
    for (int r = 1; r < ranks->world; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&ranks->barrier);
    for (int r = 0; r < ranks->world; r++)
        mmoe_group_destroy(&groups[r]);
    return 0;
}

/* Collective, among processes. */
static bool agree(struct rank *rank, const struct problem *problem) {
    struct agreement mine, all[MMOE_MAX_WORLD];
    char error[512];
    agreement_of(problem, &mine);
    if (rank_gather(rank, &mine, sizeof mine, all))
        return false;
    if (agreement_holds(all, rank->world, error, sizeof error))
        return true;
    rank_fail(rank, EXIT_INPUT, "%s", error);
    return false;
}

static int run_process(struct ranks *ranks, const struct problem *problem, const mmoe_group_config *config) {
    struct rank *rank = &ranks->rank[problem->rank];
    struct meeting meeting;
    char error[256];
    mmoe_status status = mmoe_group_create_env(config, &rank->group);
    if (status != MMOE_OK)
        return complain(code_of(status), "rank %d: %s", rank->index, mmoe_last_error());
    if (meeting_open(&meeting, rank->index, ranks->world, error, sizeof error)) {
        ranks->meeting = &meeting;
        if (agree(rank, problem))
            run_thread(rank);
    } else {
        rank_fail(rank, EXIT_RUN, "%s", error);
    }
    meeting_close(&meeting);
    mmoe_group_destroy(&rank->group);
    return 0;
}

/* Whether a rank may only have been told of what happened to another one. */
static bool was_told(const struct rank *rank) {
    return rank->status == MMOE_REFUSED || rank->status == MMOE_PEER_LOST;
}

/* Says the sentence of the rank where it began, if one of those here knows it at first hand. */
static int say_failure(const struct rank *ranks, int count) {
    const struct rank *culprit = NULL;
    for (int r = 0; r < count; r++)
        if (ranks[r].code && (!culprit || (was_told(culprit) && !was_told(&ranks[r]))))
            culprit = &ranks[r];
    if (!culprit)
        return 0;
    return complain(culprit->code, "rank %d: %s", culprit->index, culprit->error);
}

int ranks_run(const struct problem *problem, rank_body *body, void *context) {
    mmoe_group_config config = ranks_group_config(problem);
    struct ranks *ranks = calloc(1, sizeof *ranks);
    if (!ranks)
        return complain_memory("the ranks");
    ranks->world = problem->world;
    ranks->body = body;
    ranks->context = context;
    for (int r = 0; r < ranks->world; r++)
        ranks->rank[r] = (struct rank){.index = r, .world = ranks->world, .ranks = ranks};
    progress_start(&ranks->progress, ranks_print(problem) && (problem->options->progress || isatty(STDERR_FILENO)));
    bool threads = problem->rank < 0;
    int code = threads ? run_threads(ranks, &config) : run_process(ranks, problem, &config);
    progress_stop(&ranks->progress);
    if (!code)
        code = threads ? say_failure(ranks->rank, ranks->world) : say_failure(&ranks->rank[problem->rank], 1);
    free(ranks);
    return code;
}
