/* Trains a small language model, whose feed-forward layers are mixtures of experts, with megamoe.
 *
 * The model reads the last N bytes of a text and says how likely each of the 256 bytes is to come next:
 *
 *     h = W_in [embedding(byte 1) | ... | embedding(byte N)]            [H]
 *     in each of L blocks:
 *         a = rmsnorm(h)                                                [H]
 *         ids, w = the top K of router(a)                               [K], [K]
 *         h = h + sum over k of  w[k] * expert_ids[k](a)                <- this line is mmoe_forward
 *     p = softmax(W_out rmsnorm(h))                                     [256]
 *
 * The experts of every block are spread over W ranks, here threads of this process. Each rank brings its own slice of
 * the batch, and megamoe carries the tokens to their experts and back. All else (embedding, norms, routers, output) is
 * replicated: a rank computes it for its own tokens, and the gradients of all ranks are summed.
 *
 * The file reads from top to bottom: options, text, parameters, dense layers, router, forward, backward, optimizer,
 * checkpoint, reports, ranks, main. Letters as in megamoe.h (T tokens of a rank, E experts, K top-k, H hidden size, I
 * intermediate size); N is the context length, D the size of a byte's embedding, L the number of blocks.
 *
 * Repeatability. A floating-point sum depends on its order, so no order here depends on W: a batch is always 16 blocks
 * of tokens, a dense product runs over one block at a time, and each block has its own gradients, which are added in
 * block order. megamoe promises the same of the experts. So 1, 2, 4, 8 or 16 ranks train the same model bit for bit,
 * and so does a run that was interrupted and resumed.
 */
#include <argp.h>
#include <cblas.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "megamoe.h"

enum {
    BYTES = 256,            /* size of the vocabulary */
    TOKEN_BLOCKS = 16,      /* in a batch, whatever the number of ranks */
    MAX_LAYERS = 16,        /* MoE blocks */
    VALIDATION_BATCHES = 4, /* in one validation */
    VALIDATION_PART = 20,   /* one part in so many of the text, at its end, is kept for validation */
    WARMUP_STEPS = 50,      /* in which the learning rate rises */
};
static const double RATE_UNIT = 1e6;  /* --rate counts millionths */
static const double RATE_LAST = 1e-4; /* learning rate at the last step */
static const float BETA1 = 0.9f, BETA2 = 0.99f, ADAM_EPSILON = 1e-8f, WEIGHT_DECAY = 0.01f;
static const float BIAS_STEP = 3e-3f; /* of the load-balancing bias, in units of a router score */
static const float NORM_EPSILON = 1e-6f;
static const double TEMPERATURE = 0.7; /* of the generated sample */

/* What `bible`, of Debian's package bible-kjv, prints: 4.3 MB of English prose, long in the public domain. */
static const char DEFAULT_TEXT[] = "bible -l 72 Gen1:1-Rev22:21 2>/dev/null </dev/null";

/* ---- Small tools -------------------------------------------------------------------------------------------- */

/* The first rank that fails speaks for all; it does not wait for the others, which may be inside a product. */
static _Noreturn void die(const char *format, ...) {
    static atomic_flag dying = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&dying))
        pause();
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(stdout);
    _exit(EXIT_FAILURE);
}

static void check(mmoe_status status, const char *what) {
    if (status != MMOE_OK)
        die("%s: %s: %s", what, mmoe_status_name(status), mmoe_last_error());
}

/* Zeroed arrays that are all freed together. */
struct shelf {
    struct kept *first;
};
struct kept {
    struct kept *next;
    max_align_t data[];
};

static void *keep(struct shelf *shelf, int64_t count, size_t size) {
    struct kept *kept = calloc(1, sizeof *kept + (size_t)count * size);
    if (kept == NULL)
        die("no memory for an array of %" PRId64 " elements of %zu bytes", count, size);
    kept->next = shelf->first;
    shelf->first = kept;
    return kept->data;
}

static void clear_shelf(struct shelf *shelf) {
    while (shelf->first != NULL) {
        struct kept *next = shelf->first->next;
        free(shelf->first);
        shelf->first = next;
    }
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A random number in [0, 1) that depends on its three arguments alone. Nothing advances, so there is no generator to
 * save in a checkpoint, and any rank can draw the number of any parameter or token. */
enum stream { STREAM_PARAMETERS, STREAM_BATCHES, STREAM_SAMPLE };

static double random_at(int64_t seed, enum stream stream, int64_t index) {
    uint64_t z = (uint64_t)seed * 3 + (uint64_t)stream;
    for (int round = 0; round < 2; round++) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z = (z ^ (z >> 31)) + (uint64_t)(index + 1) * 0x9e3779b97f4a7c15u;
    }
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (double)((z ^ (z >> 27)) >> 11) * 0x1p-53;
}

/* FNV-1a, for checksums. */
static const uint64_t HASH_START = 0xcbf29ce484222325u;

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

/* float32 to bfloat16, to the nearest, ties to even: megamoe's own rounding. NaN does not occur here. */
static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* ---- Options ------------------------------------------------------------------------------------------------ */

struct options {
    const char *text, *out;
    bool resume;
    int64_t ranks, steps, rate, seed, tokens, context, embedding, hidden, intermediate, experts, top_k, layers, report,
        save, sample;
};

/* Every option that is a number. A checkpoint belongs to the values of those marked `fixed`. */
static const struct number {
    const char *name;
    size_t field;
    int64_t preset, least, most;
    bool fixed;
    const char *help;
} NUMBERS[] = {
    {"ranks", offsetof(struct options, ranks), 4, 1, TOKEN_BLOCKS, false,
     "ranks that share the experts: 1, 2, 4, 8, 16"},
    {"steps", offsetof(struct options, steps), 2000, 1, 100000000, true, "training steps"},
    {"rate", offsetof(struct options, rate), 3000, 1, 1000000000000, true,
     "learning rate after the warm-up, in millionths"},
    {"seed", offsetof(struct options, seed), 1, 0, INT32_MAX, true, "of all random numbers"},
    {"tokens", offsetof(struct options, tokens), 2048, 16, 1 << 20, true, "batch of all ranks, a multiple of 16"},
    {"context", offsetof(struct options, context), 16, 1, 1024, true, "bytes that the model sees"},
    {"embedding", offsetof(struct options, embedding), 16, 1, 4096, true, "size of a byte's embedding"},
    {"hidden", offsetof(struct options, hidden), 128, 1, 16384, true, "hidden size"},
    {"intermediate", offsetof(struct options, intermediate), 128, 1, 16384, true, "intermediate size of an expert"},
    {"experts", offsetof(struct options, experts), 8, 2, 1024, true, "experts of a block, a multiple of the ranks"},
    {"top-k", offsetof(struct options, top_k), 2, 2, MMOE_MAX_TOP_K, true, "experts of a token"},
    {"layers", offsetof(struct options, layers), 2, 1, MAX_LAYERS, true, "MoE blocks"},
    {"report", offsetof(struct options, report), 50, 1, 100000000, false, "steps from one progress line to the next"},
    {"save", offsetof(struct options, save), 250, 1, 100000000, false, "steps from one checkpoint to the next"},
    {"sample", offsetof(struct options, sample), 400, 0, 1000000, false, "bytes to generate at the end"},
};
enum { NUMBER_COUNT = sizeof NUMBERS / sizeof NUMBERS[0], FIRST_NUMBER_KEY = 256 };

static int64_t *field_of(const struct number *number, struct options *options) {
    return (int64_t *)((char *)options + number->field);
}

static int64_t parse_number(const struct number *number, const char *text, struct argp_state *state) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < number->least || value > number->most)
        argp_error(state, "--%s is %s, expected a whole number from %" PRId64 " to %" PRId64, number->name, text,
                   number->least, number->most);
    return value;
}

/* What no single option can tell. */
static void check_together(const struct options *o, struct argp_state *state) {
    if (TOKEN_BLOCKS % o->ranks != 0)
        argp_error(state, "--ranks is %" PRId64 ", expected 1, 2, 4, 8 or 16", o->ranks);
    if (o->tokens % TOKEN_BLOCKS != 0)
        argp_error(state, "--tokens is %" PRId64 ", expected a multiple of %d", o->tokens, TOKEN_BLOCKS);
    if (o->experts % o->ranks != 0)
        argp_error(state, "--experts is %" PRId64 ", expected a multiple of --ranks, %" PRId64, o->experts, o->ranks);
    if (o->top_k > o->experts)
        argp_error(state, "--top-k is %" PRId64 ", expected at most --experts, %" PRId64, o->top_k, o->experts);
}

static error_t parse_option(int key, char *value, struct argp_state *state) {
    struct options *o = state->input;
    if (key >= FIRST_NUMBER_KEY && key < FIRST_NUMBER_KEY + NUMBER_COUNT) {
        const struct number *number = &NUMBERS[key - FIRST_NUMBER_KEY];
        *field_of(number, o) = parse_number(number, value, state);
        return 0;
    }
    switch (key) {
    case 't':
        o->text = value;
        return 0;
    case 'o':
        o->out = value;
        return 0;
    case 'r':
        o->resume = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; a text is given as --text FILE", value);
        return 0;
    case ARGP_KEY_END:
        check_together(o, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static struct options read_options(int argc, char **argv) {
    struct options o = {.out = "out"};
    char help[NUMBER_COUNT][120];
    struct argp_option table[NUMBER_COUNT + 4] = {
        {"text", 't', "FILE", 0, "text to learn (default: what the command `bible` prints)", 0},
        {"out", 'o', "DIR", 0, "where log, picture and checkpoint go (default: out)", 0},
        {"resume", 'r', NULL, 0, "continue from the checkpoint in DIR", 0},
    };
    for (int i = 0; i < NUMBER_COUNT; i++) {
        *field_of(&NUMBERS[i], &o) = NUMBERS[i].preset;
        snprintf(help[i], sizeof help[i], "%s (default: %" PRId64 ")", NUMBERS[i].help, NUMBERS[i].preset);
        table[i + 3] = (struct argp_option){NUMBERS[i].name, FIRST_NUMBER_KEY + i, "NUMBER", 0, help[i], 1};
    }
    struct argp parser = {
        .options = table,
        .parser = parse_option,
        .doc = "Trains a small mixture-of-experts language model on a text.",
    };
    argp_parse(&parser, argc, argv, 0, NULL, &o);
    return o;
}

/* ---- Text --------------------------------------------------------------------------------------------------- */

struct text {
    uint8_t *bytes;
    int64_t count;
    int64_t training; /* bytes before this one are learnt, those from it on are for validation */
};

static struct text read_text(const char *path, int64_t context) {
    const char *name = path != NULL ? path : "the default text";
    FILE *stream = path != NULL ? fopen(path, "rb") : popen(DEFAULT_TEXT, "r");
    if (stream == NULL)
        die("%s cannot be opened: %s", name, strerror(errno));
    struct text text = {0};
    size_t room = 0, got;
    do {
        room = 2 * room + (1 << 20);
        uint8_t *larger = realloc(text.bytes, room);
        if (larger == NULL)
            die("no memory for %s", name);
        text.bytes = larger;
        got = fread(text.bytes + text.count, 1, room - (size_t)text.count, stream);
        text.count += (int64_t)got;
    } while (text.count == (int64_t)room);
    if (ferror(stream))
        die("%s cannot be read: %s", name, strerror(errno));
    int closed = path != NULL ? fclose(stream) : pclose(stream);
    if (path == NULL && (closed != 0 || text.count == 0))
        die("the default text is printed by the command `bible`, which did not run: install the Debian package "
            "bible-kjv, or give --text FILE");
    int64_t least = VALIDATION_PART * (context + 2);
    if (text.count < least)
        die("%s holds %" PRId64 " bytes, expected at least %" PRId64, name, text.count, least);
    text.training = text.count - text.count / VALIDATION_PART;
    return text;
}

/* Entropy of the bytes taken one by one, in nats: the least loss of a model that sees no context. */
static double unigram_entropy(const struct text *text) {
    int64_t seen[BYTES] = {0};
    for (int64_t i = 0; i < text->count; i++)
        seen[text->bytes[i]]++;
    double entropy = 0;
    for (int byte = 0; byte < BYTES; byte++) {
        double share = (double)seen[byte] / (double)text->count;
        if (share > 0)
            entropy -= share * log(share);
    }
    return entropy;
}

/* ---- Parameters --------------------------------------------------------------------------------------------- */

/* All parameters lie in one array, the replicated ones first. Here is where each tensor begins. */
struct places {
    int64_t embedding;             /* [256, D] */
    int64_t input;                 /* W_in [H, N*D] */
    int64_t gain[MAX_LAYERS + 1];  /* [H] of the norm before each block and before the output, less 1 */
    int64_t router[MAX_LAYERS];    /* [E, H] */
    int64_t output;                /* W_out [256, H] */
    int64_t replicated;            /* end of the replicated parameters */
    int64_t expert[MAX_LAYERS][3]; /* gate [E, I, H], up [E, I, H], down [E, H, I] */
    int64_t total;
};
enum { GATE, UP, DOWN };

/* What training changes, beside the parameters and their moments. */
struct progress {
    int64_t step;           /* steps done: also the position in the data, whose random numbers depend on it alone */
    int64_t loss_steps;     /* steps since the last report */
    double loss_sum;        /* their training losses */
    double validation_loss; /* at the last report */
};

/* One memory for all ranks, since they are threads; but a rank touches only its own experts. */
struct model {
    struct options options;
    struct text text;
    uint64_t text_hash;
    struct places at;
    struct shelf shelf;
    float *value, *gradient, *moment1, *moment2; /* [total] fp32: masters, their gradients, the moments of AdamW */
    uint16_t *expert_value;                      /* [total - replicated] bf16: what the experts compute with */
    float *block_gradient;                       /* [16, replicated] gradients of each block of tokens */
    double block_loss[TOKEN_BLOCKS];             /* sum of the losses of each block */
    float *bias;                                 /* [L, E] load-balancing bias */
    int64_t *load;                               /* [L, E] rows of each expert since the last report */
    struct progress progress;
    pthread_barrier_t barrier;
    bool stop;       /* Ctrl-C was pressed: all ranks leave after this step */
    uint8_t *sample; /* [N + bytes to generate] a prompt and what the model makes of it */
    const char *log, *picture, *checkpoint, *unfinished; /* paths */
};

static struct places place_parameters(const struct options *o) {
    struct places at;
    int64_t next = 0;
    at.embedding = next, next += BYTES * o->embedding;
    at.input = next, next += o->hidden * o->context * o->embedding;
    for (int64_t l = 0; l <= o->layers; l++)
        at.gain[l] = next, next += o->hidden;
    for (int64_t l = 0; l < o->layers; l++)
        at.router[l] = next, next += o->experts * o->hidden;
    at.output = next, next += BYTES * o->hidden;
    at.replicated = next;
    for (int64_t l = 0; l < o->layers; l++)
        for (int part = GATE; part <= DOWN; part++)
            at.expert[l][part] = next, next += o->experts * o->intermediate * o->hidden;
    at.total = next;
    return at;
}

/* Uniform with this standard deviation. */
static void draw(struct model *m, int64_t first, int64_t count, double deviation) {
    for (int64_t i = first; i < first + count; i++) {
        double u = random_at(m->options.seed, STREAM_PARAMETERS, i);
        m->value[i] = (float)(deviation * sqrt(12) * (u - 0.5));
    }
}

/* Every layer keeps the size of what passes through it; the blocks together add about as much as was there; the
 * output starts near zero, so that the first loss is near log 256. A gain is stored less 1: weight decay then draws it
 * to 1. */
static void draw_parameters(struct model *m) {
    const struct options *o = &m->options;
    const struct places *at = &m->at;
    int64_t width = o->context * o->embedding, size = o->experts * o->intermediate * o->hidden;
    draw(m, at->embedding, BYTES * o->embedding, 1);
    draw(m, at->input, o->hidden * width, 1 / sqrt((double)width));
    for (int64_t l = 0; l < o->layers; l++) {
        draw(m, at->router[l], o->experts * o->hidden, 0.1 / sqrt((double)o->hidden));
        draw(m, at->expert[l][GATE], size, 1 / sqrt((double)o->hidden));
        draw(m, at->expert[l][UP], size, 1 / sqrt((double)o->hidden));
        draw(m, at->expert[l][DOWN], size, 1 / sqrt((double)(o->intermediate * o->layers)));
    }
    draw(m, at->output, BYTES * o->hidden, 0.1 / sqrt((double)o->hidden));
}

static void round_experts(struct model *m, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; i++)
        m->expert_value[i - m->at.replicated] = to_bf16(m->value[i]);
}

static void make_model(struct model *m) {
    const struct options *o = &m->options;
    m->at = place_parameters(o);
    m->value = keep(&m->shelf, m->at.total, sizeof(float));
    m->gradient = keep(&m->shelf, m->at.total, sizeof(float));
    m->moment1 = keep(&m->shelf, m->at.total, sizeof(float));
    m->moment2 = keep(&m->shelf, m->at.total, sizeof(float));
    m->expert_value = keep(&m->shelf, m->at.total - m->at.replicated, sizeof(uint16_t));
    m->block_gradient = keep(&m->shelf, TOKEN_BLOCKS * m->at.replicated, sizeof(float));
    m->bias = keep(&m->shelf, o->layers * o->experts, sizeof(float));
    m->load = keep(&m->shelf, o->layers * o->experts, sizeof(int64_t));
    m->sample = keep(&m->shelf, o->context + o->sample, 1);
    draw_parameters(m);
    round_experts(m, m->at.replicated, m->at.total - m->at.replicated);
}

/* ---- One rank ----------------------------------------------------------------------------------------------- */

struct rank {
    struct model *model;
    int number;
    int64_t tokens; /* T: its slice of a batch */
    int64_t block;  /* tokens of a block */
    mmoe_group *group;
    mmoe_layer *layer[MAX_LAYERS];
    mmoe_saved *saved[MAX_LAYERS];
    struct shelf shelf;
    const uint8_t **window;             /* [T] what each token sees: N bytes; the byte to predict comes after them */
    float *context;                     /* [T, N*D] their embeddings */
    float *h[MAX_LAYERS + 1];           /* [T, H] before each block and before the output */
    float *inverse_rms[MAX_LAYERS + 1]; /* [T] */
    float *a[MAX_LAYERS + 1];           /* [T, H] the same, normalised */
    uint16_t *x[MAX_LAYERS];            /* [T, H] bf16: a, as the experts see it */
    float *score;                       /* [T, E] of the router; in backward its gradient */
    int32_t *ids[MAX_LAYERS];           /* [T, K] */
    float *w[MAX_LAYERS];               /* [T, K] */
    uint16_t *y;                        /* [T, H] bf16: what the experts add; in backward its gradient */
    float *logit;                       /* [T, 256]; after the loss its gradient */
    float *dh, *da;                     /* [T, H] */
    uint16_t *dx;                       /* [T, H] bf16 */
    float *dw;                          /* [T, K] */
};

static void make_rank(struct rank *r, struct model *m, int number) {
    const struct options *o = &m->options;
    r->model = m;
    r->number = number;
    r->tokens = o->tokens / o->ranks;
    r->block = o->tokens / TOKEN_BLOCKS;
    struct shelf *s = &r->shelf;
    r->window = keep(s, r->tokens, sizeof(uint8_t *));
    r->context = keep(s, r->tokens * o->context * o->embedding, sizeof(float));
    for (int64_t l = 0; l <= o->layers; l++) {
        r->h[l] = keep(s, r->tokens * o->hidden, sizeof(float));
        r->inverse_rms[l] = keep(s, r->tokens, sizeof(float));
        r->a[l] = keep(s, r->tokens * o->hidden, sizeof(float));
    }
    for (int64_t l = 0; l < o->layers; l++) {
        r->x[l] = keep(s, r->tokens * o->hidden, sizeof(uint16_t));
        r->ids[l] = keep(s, r->tokens * o->top_k, sizeof(int32_t));
        r->w[l] = keep(s, r->tokens * o->top_k, sizeof(float));
    }
    r->score = keep(s, r->tokens * o->experts, sizeof(float));
    r->y = keep(s, r->tokens * o->hidden, sizeof(uint16_t));
    r->logit = keep(s, r->tokens * BYTES, sizeof(float));
    r->dh = keep(s, r->tokens * o->hidden, sizeof(float));
    r->da = keep(s, r->tokens * o->hidden, sizeof(float));
    r->dx = keep(s, r->tokens * o->hidden, sizeof(uint16_t));
    r->dw = keep(s, r->tokens * o->top_k, sizeof(float));
}

/* Number, in the batch, of the block in which token t of this rank lies; and the gradients of that block. */
static int64_t block_of(const struct rank *r, int64_t t) {
    return (r->number * r->tokens + t) / r->block;
}

static float *gradient_of(const struct rank *r, int64_t t) {
    return r->model->block_gradient + block_of(r, t) * r->model->at.replicated;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- Dense layers ------------------------------------------------------------------------------------------- */

/* y[T,out] = x[T,in] W[out,in]^T, one block of tokens at a time. */
static void linear(const struct rank *r, int64_t tokens, int64_t in, int64_t out, const float *x, int64_t weight,
                   float *y) {
    for (int64_t t = 0; t < tokens; t += r->block)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)smaller(r->block, tokens - t), (int)out, (int)in, 1,
                    x + t * in, (int)in, r->model->value + weight, (int)in, 0, y + t * out, (int)out);
}

/* With y = x W^T:  dx = dy W,  dW = dy^T x.
 * dx[T,in] = beta * dx + dy[T,out] W[out,in]; dW[out,in] += dy^T x, in the gradients of each block. A block's dW comes
 * before its dx, which may therefore take the place of x. */
static void linear_backward(const struct rank *r, int64_t in, int64_t out, const float *x, int64_t weight,
                            const float *dy, float beta, float *dx) {
    for (int64_t t = 0; t < r->tokens; t += r->block) {
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)r->block, 1, dy + t * out,
                    (int)out, x + t * in, (int)in, 1, gradient_of(r, t) + weight, (int)in);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)r->block, (int)in, (int)out, 1, dy + t * out,
                    (int)out, r->model->value + weight, (int)in, beta, dx + t * in, (int)in);
    }
}

/* context[T, N*D]: the embeddings of the N bytes that a token sees, side by side. */
static void embed(const struct rank *r, int64_t tokens) {
    const struct model *m = r->model;
    int64_t n = m->options.context, d = m->options.embedding;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < n; i++)
            memcpy(r->context + (t * n + i) * d, m->value + m->at.embedding + r->window[t][i] * d,
                   (size_t)d * sizeof(float));
}

/* The gradient of a byte's embedding is the sum of the gradients of all places where it stood. */
static void embed_backward(const struct rank *r, const float *dcontext) {
    const struct model *m = r->model;
    int64_t n = m->options.context, d = m->options.embedding;
    for (int64_t t = 0; t < r->tokens; t++)
        for (int64_t i = 0; i < n; i++) {
            float *sum = gradient_of(r, t) + m->at.embedding + r->window[t][i] * d;
            for (int64_t j = 0; j < d; j++)
                sum[j] += dcontext[(t * n + i) * d + j];
        }
}

/* a[T,H] = (1 + gain) * h * s, where s = 1 / sqrt(mean(h^2) + epsilon). */
static void normalise(const struct rank *r, int64_t l, int64_t tokens) {
    int64_t hidden = r->model->options.hidden;
    const float *gain = r->model->value + r->model->at.gain[l];
    for (int64_t t = 0; t < tokens; t++) {
        const float *h = r->h[l] + t * hidden;
        float *a = r->a[l] + t * hidden;
        float squares = 0;
        for (int64_t i = 0; i < hidden; i++)
            squares += h[i] * h[i];
        float s = 1 / sqrtf(squares / (float)hidden + NORM_EPSILON);
        for (int64_t i = 0; i < hidden; i++)
            a[i] = (1 + gain[i]) * h[i] * s;
        r->inverse_rms[l][t] = s;
    }
}

/* With n = h s and dn = (1 + gain) da:  dgain = sum over tokens of da n,  dh = s (dn - n mean(n dn)).
 * Reads da[T,H] and adds to dh[T,H]. */
static void normalise_backward(const struct rank *r, int64_t l) {
    int64_t hidden = r->model->options.hidden;
    const float *gain = r->model->value + r->model->at.gain[l];
    for (int64_t t = 0; t < r->tokens; t++) {
        const float *h = r->h[l] + t * hidden, *da = r->da + t * hidden;
        float *dgain = gradient_of(r, t) + r->model->at.gain[l], *dh = r->dh + t * hidden;
        float s = r->inverse_rms[l][t], mean = 0;
        for (int64_t i = 0; i < hidden; i++) {
            dgain[i] += da[i] * h[i] * s;
            mean += h[i] * s * (1 + gain[i]) * da[i] / (float)hidden;
        }
        for (int64_t i = 0; i < hidden; i++)
            dh[i] += s * ((1 + gain[i]) * da[i] - h[i] * s * mean);
    }
}

/* ---- Router ------------------------------------------------------------------------------------------------- */

/* Scores are p = softmax(R a) over all E experts. The K experts with the largest p + bias are taken: the bias, which
 * rises while an expert gets less than its share, steers the choice and nothing else. The weights are the p of the K
 * experts divided by their sum. That is the softmax of their logits alone. */
static void route(const struct rank *r, int64_t l, int64_t tokens) {
    const struct model *m = r->model;
    int64_t experts = m->options.experts, top_k = m->options.top_k;
    const float *bias = m->bias + l * experts;
    linear(r, tokens, m->options.hidden, experts, r->a[l], m->at.router[l], r->score);
    for (int64_t t = 0; t < tokens; t++) {
        float *p = r->score + t * experts, *w = r->w[l] + t * top_k;
        int32_t *ids = r->ids[l] + t * top_k;
        float largest = p[0], sum = 0, chosen = 0;
        for (int64_t e = 1; e < experts; e++)
            largest = fmaxf(largest, p[e]);
        for (int64_t e = 0; e < experts; e++)
            sum += p[e] = expf(p[e] - largest);
        for (int64_t e = 0; e < experts; e++)
            p[e] /= sum;
        for (int64_t k = 0; k < top_k; k++) {
            int32_t best = -1;
            for (int32_t e = 0; e < experts; e++)
                if (p[e] >= 0 && (best < 0 || p[e] + bias[e] > p[best] + bias[best]))
                    best = e;
            if (best < 0)
                die("training has diverged: a router score is not a number");
            ids[k] = best;
            chosen += w[k] = p[best];
            p[best] = -1; /* taken */
        }
        for (int64_t k = 0; k < top_k; k++)
            w[k] /= chosen;
    }
}

/* With w the softmax of the K chosen logits z:  dz[k] = w[k] (dw[k] - sum over j of w[j] dw[j]); the logits of the
 * other experts have no part in the loss. Reads dw[T,K], which megamoe gives, and adds to da[T,H]. */
static void route_backward(const struct rank *r, int64_t l) {
    const struct model *m = r->model;
    int64_t experts = m->options.experts, top_k = m->options.top_k;
    memset(r->score, 0, (size_t)(r->tokens * experts) * sizeof(float));
    for (int64_t t = 0; t < r->tokens; t++) {
        const float *w = r->w[l] + t * top_k, *dw = r->dw + t * top_k;
        float mean = 0;
        for (int64_t k = 0; k < top_k; k++)
            mean += w[k] * dw[k];
        for (int64_t k = 0; k < top_k; k++)
            r->score[t * experts + r->ids[l][t * top_k + k]] = w[k] * (dw[k] - mean);
    }
    linear_backward(r, m->options.hidden, experts, r->a[l], m->at.router[l], r->score, 1, r->da);
}

/* ---- Experts: megamoe --------------------------------------------------------------------------------------- */

/* This rank's experts of one part, [El, I, H] or for `down` [El, H, I]: their bf16 weights, and fp32 gradients. */
static int64_t expert_place(const struct rank *r, int64_t l, int part) {
    const struct options *o = &r->model->options;
    return r->model->at.expert[l][part] + r->number * (o->experts / o->ranks) * o->intermediate * o->hidden;
}

static mmoe_tensor expert_stack(const struct rank *r, void *data, mmoe_dtype dtype, int part) {
    const struct options *o = &r->model->options;
    int64_t rows = part == DOWN ? o->hidden : o->intermediate, columns = part == DOWN ? o->intermediate : o->hidden;
    return mmoe_stack(data, dtype, o->experts / o->ranks, rows, columns);
}

static mmoe_tensor expert_weights(const struct rank *r, int64_t l, int part) {
    const struct model *m = r->model;
    return expert_stack(r, m->expert_value + expert_place(r, l, part) - m->at.replicated, MMOE_BF16, part);
}

static mmoe_tensor expert_gradients(const struct rank *r, int64_t l, int part) {
    return expert_stack(r, r->model->gradient + expert_place(r, l, part), MMOE_F32, part);
}

static void experts_forward(struct rank *r, int64_t l, int64_t tokens) {
    const struct options *o = &r->model->options;
    for (int64_t i = 0; i < tokens * o->hidden; i++)
        r->x[l][i] = to_bf16(r->a[l][i]);
    mmoe_forward_args args = mmoe_forward_args_default();
    args.x = mmoe_matrix(r->x[l], MMOE_BF16, tokens, o->hidden);
    args.ids = mmoe_matrix(r->ids[l], MMOE_I32, tokens, o->top_k);
    args.weights = mmoe_matrix(r->w[l], MMOE_F32, tokens, o->top_k);
    args.gate = expert_weights(r, l, GATE);
    args.up = expert_weights(r, l, UP);
    args.down = expert_weights(r, l, DOWN);
    args.y = mmoe_matrix(r->y, MMOE_BF16, tokens, o->hidden);
    args.saved = r->saved[l];
    check(mmoe_forward(r->layer[l], &args), "mmoe_forward");
    for (int64_t i = 0; i < tokens * o->hidden; i++)
        r->h[l + 1][i] = r->h[l][i] + from_bf16(r->y[i]);
}

/* dy[T,H] is dh, since h = h + y. Sets da[T,H], dw[T,K] and the gradients of this rank's experts. */
static void experts_backward(struct rank *r, int64_t l) {
    const struct options *o = &r->model->options;
    for (int64_t i = 0; i < r->tokens * o->hidden; i++)
        r->y[i] = to_bf16(r->dh[i]);
    mmoe_backward_args args = mmoe_backward_args_default();
    args.saved = r->saved[l];
    args.dy = mmoe_matrix(r->y, MMOE_BF16, r->tokens, o->hidden);
    args.gate = expert_weights(r, l, GATE);
    args.up = expert_weights(r, l, UP);
    args.down = expert_weights(r, l, DOWN);
    args.dx = mmoe_matrix(r->dx, MMOE_BF16, r->tokens, o->hidden);
    args.dweights = mmoe_matrix(r->dw, MMOE_F32, r->tokens, o->top_k);
    args.dgate = expert_gradients(r, l, GATE);
    args.dup = expert_gradients(r, l, UP);
    args.ddown = expert_gradients(r, l, DOWN);
    check(mmoe_backward(r->layer[l], &args), "mmoe_backward");
    for (int64_t i = 0; i < r->tokens * o->hidden; i++)
        r->da[i] = from_bf16(r->dx[i]);
}

/* ---- The whole model ---------------------------------------------------------------------------------------- */

/* From window[tokens] to logit[tokens, 256]. Collective: a rank may come with no tokens, but it must come. */
static void forward(struct rank *r, int64_t tokens) {
    const struct options *o = &r->model->options;
    const struct places *at = &r->model->at;
    embed(r, tokens);
    linear(r, tokens, o->context * o->embedding, o->hidden, r->context, at->input, r->h[0]);
    for (int64_t l = 0; l < o->layers; l++) {
        normalise(r, l, tokens);
        route(r, l, tokens);
        experts_forward(r, l, tokens);
    }
    normalise(r, o->layers, tokens);
    linear(r, tokens, o->hidden, BYTES, r->a[o->layers], at->output, r->logit);
}

/* The loss of a token is -log p[target], p = softmax(logit); the loss of a batch is the mean over all its tokens, so
 *     dlogit[c] = (p[c] - [c = target]) / tokens of the batch.
 * This is the only place that divides: every other gradient is a plain sum. Turns logit into its gradient. */
static void loss(struct rank *r) {
    struct model *m = r->model;
    for (int64_t t = 0; t < r->tokens; t += r->block)
        m->block_loss[block_of(r, t)] = 0;
    for (int64_t t = 0; t < r->tokens; t++) {
        float *logit = r->logit + t * BYTES, largest = logit[0], sum = 0;
        uint8_t target = r->window[t][m->options.context];
        for (int c = 1; c < BYTES; c++)
            largest = fmaxf(largest, logit[c]);
        float target_logit = logit[target] - largest;
        for (int c = 0; c < BYTES; c++)
            sum += logit[c] = expf(logit[c] - largest);
        m->block_loss[block_of(r, t)] += (double)(logf(sum) - target_logit);
        float scale = 1 / (sum * (float)m->options.tokens);
        for (int c = 0; c < BYTES; c++)
            logit[c] *= scale;
        logit[target] -= 1 / (float)m->options.tokens;
    }
}

static double mean_loss(const struct model *m) {
    double sum = 0;
    for (int b = 0; b < TOKEN_BLOCKS; b++)
        sum += m->block_loss[b];
    return sum / (double)m->options.tokens;
}

/* From dlogit[T,256] to the gradients of all parameters, the layers in reverse. */
static void backward(struct rank *r) {
    const struct options *o = &r->model->options;
    const struct places *at = &r->model->at;
    memset(gradient_of(r, 0), 0, (size_t)(r->tokens / r->block * at->replicated) * sizeof(float));
    memset(r->dh, 0, (size_t)(r->tokens * o->hidden) * sizeof(float));
    linear_backward(r, o->hidden, BYTES, r->a[o->layers], at->output, r->logit, 0, r->da);
    normalise_backward(r, o->layers);
    for (int64_t l = o->layers - 1; l >= 0; l--) {
        experts_backward(r, l);
        route_backward(r, l);
        normalise_backward(r, l);
    }
    /* The context is not needed again: its gradient takes its place. */
    linear_backward(r, o->context * o->embedding, o->hidden, r->context, at->input, r->dh, 0, r->context);
    embed_backward(r, r->context);
}

/* ---- Optimizer ---------------------------------------------------------------------------------------------- */

/* Rises linearly, then falls along a cosine. */
static double learning_rate(const struct options *o, int64_t step) {
    double rise = fmin(1, (double)step / WARMUP_STEPS), done = (double)step / (double)o->steps;
    double highest = (double)o->rate / RATE_UNIT;
    return rise * (RATE_LAST + (highest - RATE_LAST) * 0.5 * (1 + cos(acos(-1) * done)));
}

/* AdamW on parameters first .. first + count - 1; `step` counts from 1.
 *     m1 = beta1 m1 + (1 - beta1) g,   m2 = beta2 m2 + (1 - beta2) g^2,
 *     v = v - rate (m1' / (sqrt(m2') + epsilon) + decay v),   m1' = m1 / (1 - beta1^step),  m2' likewise. */
static void adamw(struct model *m, int64_t first, int64_t count, int64_t step) {
    float rate = (float)learning_rate(&m->options, step);
    float scale1 = (float)(1 / (1 - pow(BETA1, (double)step))), scale2 = (float)(1 / (1 - pow(BETA2, (double)step)));
    for (int64_t i = first; i < first + count; i++) {
        float g = m->gradient[i];
        m->moment1[i] = BETA1 * m->moment1[i] + (1 - BETA1) * g;
        m->moment2[i] = BETA2 * m->moment2[i] + (1 - BETA2) * g * g;
        float towards = m->moment1[i] * scale1 / (sqrtf(m->moment2[i] * scale2) + ADAM_EPSILON);
        m->value[i] -= rate * (towards + WEIGHT_DECAY * m->value[i]);
    }
}

/* Each rank sums, over the blocks in order, its share of the replicated gradients, and updates that share. */
static void update_replicated(const struct rank *r, int64_t step) {
    struct model *m = r->model;
    int64_t ranks = m->options.ranks;
    int64_t first = m->at.replicated * r->number / ranks, end = m->at.replicated * (r->number + 1) / ranks;
    for (int64_t i = first; i < end; i++)
        m->gradient[i] = 0;
    for (int64_t b = 0; b < TOKEN_BLOCKS; b++)
        for (int64_t i = first; i < end; i++)
            m->gradient[i] += m->block_gradient[b * m->at.replicated + i];
    adamw(m, first, end - first, step);
}

static void update_experts(const struct rank *r, int64_t step) {
    struct model *m = r->model;
    const struct options *o = &m->options;
    int64_t count = o->experts / o->ranks * o->intermediate * o->hidden;
    for (int64_t l = 0; l < o->layers; l++)
        for (int part = GATE; part <= DOWN; part++) {
            adamw(m, expert_place(r, l, part), count, step);
            round_experts(m, expert_place(r, l, part), count);
        }
}

/* The plan of a forward tells every rank the counts of all. An expert with less than the mean load is made a little
 * more likely to be chosen, one with more a little less. */
static void balance(const struct rank *r, int64_t l) {
    struct model *m = r->model;
    const struct options *o = &m->options;
    const mmoe_plan *plan = mmoe_saved_plan(r->saved[l]);
    for (int64_t e = 0; e < o->experts; e++) {
        int64_t load = 0;
        for (int32_t source = 0; source < plan->world; source++)
            load += plan->counts[source * o->experts + e];
        m->load[l * o->experts + e] += load;
        int64_t over = load * o->experts - o->tokens * o->top_k;
        m->bias[l * o->experts + e] -= over > 0 ? BIAS_STEP : over < 0 ? -BIAS_STEP : 0;
    }
}

/* ---- Checkpoint --------------------------------------------------------------------------------------------- */

/* The file: these pieces one after the other, and a checksum of them all. Numbers are in the byte order of the
 * machine. How many ranks there are is not in it, so any number of them may resume. */
struct identity {
    char magic[8];
    int64_t version;
    int64_t fixed[NUMBER_COUNT]; /* the options that must not change; 0 in the place of the others */
    int64_t text_bytes;
    uint64_t text_hash;
};
struct piece {
    void *data;
    size_t bytes;
};
enum { PIECES = 6, CHECKPOINT_VERSION = 2 };

static struct identity identity_of(struct model *m) {
    struct identity identity = {.magic = "MOETRAIN", .version = CHECKPOINT_VERSION};
    for (int i = 0; i < NUMBER_COUNT; i++)
        if (NUMBERS[i].fixed)
            identity.fixed[i] = *field_of(&NUMBERS[i], &m->options);
    identity.text_bytes = m->text.count;
    identity.text_hash = m->text_hash;
    return identity;
}

static void list_pieces(struct model *m, struct piece pieces[PIECES]) {
    size_t experts = (size_t)(m->options.layers * m->options.experts), total = (size_t)m->at.total;
    pieces[0] = (struct piece){&m->progress, sizeof m->progress};
    pieces[1] = (struct piece){m->bias, experts * sizeof *m->bias};
    pieces[2] = (struct piece){m->load, experts * sizeof *m->load};
    pieces[3] = (struct piece){m->value, total * sizeof *m->value};
    pieces[4] = (struct piece){m->moment1, total * sizeof *m->moment1};
    pieces[5] = (struct piece){m->moment2, total * sizeof *m->moment2};
}

static char *path_in(struct model *m, const char *name) {
    size_t room = strlen(m->options.out) + strlen(name) + 2;
    char *path = keep(&m->shelf, (int64_t)room, 1);
    snprintf(path, room, "%s/%s", m->options.out, name);
    return path;
}

/* Written beside the old one and renamed once it is on the disk: at any moment one whole checkpoint is there. */
static void save_checkpoint(struct model *m) {
    struct identity identity = identity_of(m);
    struct piece pieces[PIECES];
    list_pieces(m, pieces);
    FILE *file = fopen(m->unfinished, "wb");
    if (file == NULL)
        die("%s cannot be written: %s", m->unfinished, strerror(errno));
    uint64_t hash = hash_bytes(HASH_START, &identity, sizeof identity);
    bool good = fwrite(&identity, sizeof identity, 1, file) == 1;
    for (int i = 0; i < PIECES; i++) {
        hash = hash_bytes(hash, pieces[i].data, pieces[i].bytes);
        good = good && fwrite(pieces[i].data, pieces[i].bytes, 1, file) == 1;
    }
    good = good && fwrite(&hash, sizeof hash, 1, file) == 1 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (fclose(file) != 0 || !good || rename(m->unfinished, m->checkpoint) != 0)
        die("%s cannot be written: %s", m->checkpoint, strerror(errno));
}

static void check_identity(struct model *m, const struct identity *found, const char *path) {
    struct identity wanted = identity_of(m);
    if (memcmp(found->magic, wanted.magic, sizeof found->magic) != 0)
        die("%s is not a checkpoint of this program", path);
    if (found->version != wanted.version)
        die("%s has version %" PRId64 ", expected %" PRId64, path, found->version, wanted.version);
    for (int i = 0; i < NUMBER_COUNT; i++)
        if (found->fixed[i] != wanted.fixed[i])
            die("%s was made with --%s %" PRId64 ", this run has %" PRId64, path, NUMBERS[i].name, found->fixed[i],
                wanted.fixed[i]);
    if (found->text_bytes != wanted.text_bytes || found->text_hash != wanted.text_hash)
        die("%s was made with another text: %" PRId64 " bytes, this one has %" PRId64, path, found->text_bytes,
            wanted.text_bytes);
}

static void load_checkpoint(struct model *m) {
    const char *path = m->checkpoint;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        die("%s cannot be opened: %s", path, strerror(errno));
    struct identity identity;
    if (fread(&identity, sizeof identity, 1, file) != 1)
        die("%s is too short for a checkpoint", path);
    check_identity(m, &identity, path);

    struct piece pieces[PIECES];
    list_pieces(m, pieces);
    uint64_t stored, hash = hash_bytes(HASH_START, &identity, sizeof identity);
    size_t expected = sizeof identity + sizeof stored;
    for (int i = 0; i < PIECES; i++)
        expected += pieces[i].bytes;
    struct stat about;
    if (fstat(fileno(file), &about) != 0 || about.st_size != (off_t)expected)
        die("%s holds %lld bytes, expected %zu: it is not whole", path, (long long)about.st_size, expected);
    for (int i = 0; i < PIECES; i++) {
        if (fread(pieces[i].data, pieces[i].bytes, 1, file) != 1)
            die("%s cannot be read: %s", path, strerror(errno));
        hash = hash_bytes(hash, pieces[i].data, pieces[i].bytes);
    }
    if (fread(&stored, sizeof stored, 1, file) != 1 || stored != hash)
        die("%s is damaged: its checksum does not match", path);
    fclose(file);
}

/* ---- Reports ------------------------------------------------------------------------------------------------ */

static const char LOG_HEAD[] = "step,train_loss,validation_loss,tokens_per_second,load_imbalance\n";

/* Keeps the whole lines of the log up to this step: those after it are about to be made again. */
static void trim_log(const char *path, int64_t step) {
    FILE *file = fopen(path, "r+");
    if (file == NULL)
        die("%s cannot be opened: %s", path, strerror(errno));
    char line[200];
    off_t end = 0;
    while (fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL &&
           (end == 0 || strtoll(line, NULL, 10) <= step))
        end = ftello(file);
    if (ftruncate(fileno(file), end) != 0 || fclose(file) != 0)
        die("%s cannot be shortened: %s", path, strerror(errno));
}

static void write_log(const char *path, const char *mode, const char *line) {
    FILE *file = fopen(path, mode);
    if (file == NULL || fputs(line, file) < 0 || fclose(file) != 0)
        die("%s cannot be written: %s", path, strerror(errno));
}

/* The load of the busiest expert over the mean load, in the worst block. */
static double load_imbalance(const struct model *m) {
    const struct options *o = &m->options;
    double worst = 0;
    for (int64_t l = 0; l < o->layers; l++) {
        int64_t sum = 0, most = 0;
        for (int64_t e = 0; e < o->experts; e++) {
            int64_t load = m->load[l * o->experts + e];
            sum += load;
            most = load > most ? load : most;
        }
        worst = fmax(worst, (double)(most * o->experts) / (double)sum);
    }
    return worst;
}

/* One line on the screen and one in the log; the counts then begin anew. */
static void report(struct model *m, double validation_loss, double tokens_per_second) {
    struct progress *p = &m->progress;
    double train_loss = p->loss_sum / (double)p->loss_steps, imbalance = load_imbalance(m);
    p->loss_sum = 0;
    p->loss_steps = 0;
    p->validation_loss = validation_loss;

    char line[200];
    snprintf(line, sizeof line, "%" PRId64 ",%.9g,%.9g,%.0f,%.4f\n", p->step, train_loss, validation_loss,
             tokens_per_second, imbalance);
    write_log(m->log, "a", line);
    printf("%7" PRId64 "  %10.4f  %15.4f  %8.0f  %9.2f\n", p->step, train_loss, validation_loss, tokens_per_second,
           imbalance);
    fflush(stdout);
}

static void show_configuration(const struct model *m) {
    const struct options *o = &m->options;
    int64_t experts = m->at.total - m->at.replicated;
    printf("text     %s: %" PRId64 " bytes, the last %" PRId64 " for validation\n",
           o->text != NULL ? o->text : "King James Bible", m->text.count, m->text.count - m->text.training);
    printf("model    %" PRId64 " bytes of context, hidden %" PRId64 ", %" PRId64 " blocks of %" PRId64
           " experts of size %" PRId64 ", top %" PRId64 "\n",
           o->context, o->hidden, o->layers, o->experts, o->intermediate, o->top_k);
    printf("         %" PRId64 " parameters, %" PRId64 " of them used by a token\n", m->at.total,
           m->at.replicated + experts / o->experts * o->top_k);
    printf("ranks    %" PRId64 " of %" PRId64 " experts a block and %" PRId64 " tokens a step\n", o->ranks,
           o->experts / o->ranks, o->tokens / o->ranks);
    printf("steps    %" PRId64 ", seed %" PRId64 ", megamoe %s\n\n", o->steps, o->seed, mmoe_version());
}

static void show_losses(const struct model *m) {
    double unigram = unigram_entropy(&m->text), model = m->progress.validation_loss;
    printf("\n                                 nats  bits per byte\n");
    printf("unigram entropy of the text    %6.3f         %6.3f\n", unigram, unigram / log(2));
    printf("validation loss                %6.3f         %6.3f   (%.0f %%)\n\n", model, model / log(2),
           100 * model / unigram);
}

/* A bar for each expert; a full share of 1/E is 20 characters long. */
static void show_load(const struct model *m) {
    const struct options *o = &m->options;
    static const char BAR[] = "############################################################";
    for (int64_t l = 0; l < o->layers; l++) {
        int64_t sum = 0;
        for (int64_t e = 0; e < o->experts; e++)
            sum += m->load[l * o->experts + e];
        for (int64_t e = 0; e < o->experts; e++) {
            double share = (double)m->load[l * o->experts + e] / (double)sum;
            int length = (int)fmin(20 * share * (double)o->experts + 0.5, sizeof BAR - 1);
            printf("block %" PRId64 "  rank %-2" PRId64 "  expert %-4" PRId64 " %5.1f %%  %.*s\n", l,
                   e / (o->experts / o->ranks), e, 100 * share, length, BAR);
        }
    }
}

static void show_sample(const struct model *m) {
    printf("\n");
    for (int64_t i = 0; i < m->options.context + m->options.sample; i++) {
        if (i == m->options.context)
            printf("|"); /* where the prompt ends */
        uint8_t byte = m->sample[i];
        putchar(iscntrl(byte) && byte != '\n' ? '?' : byte);
    }
    printf("\n\n");
}

static void draw_picture(const struct model *m) {
    const char *arguments[] = {"gnuplot", "-c", PLOT_SCRIPT, m->log, m->picture, NULL};
    pid_t child;
    int status;
    if (posix_spawnp(&child, "gnuplot", NULL, NULL, (char *const *)arguments, environ) == 0 &&
        waitpid(child, &status, 0) == child && status == 0)
        printf("picture  %s\n", m->picture);
    else
        printf("picture  not drawn: gnuplot is missing or failed\n");
}

/* ---- Training ----------------------------------------------------------------------------------------------- */

/* The batch of a step is drawn at random from the training part; that of a validation is evenly spaced. */
static void take_batch(const struct rank *r, int64_t step) {
    const struct model *m = r->model;
    const struct options *o = &m->options;
    for (int64_t t = 0; t < r->tokens; t++) {
        int64_t index = step * o->tokens + r->number * r->tokens + t;
        double place = random_at(o->seed, STREAM_BATCHES, index) * (double)(m->text.training - o->context);
        r->window[t] = m->text.bytes + (int64_t)place;
    }
}

static void take_validation(const struct rank *r, int64_t batch) {
    const struct model *m = r->model;
    const struct options *o = &m->options;
    int64_t room = m->text.count - m->text.training - o->context, all = VALIDATION_BATCHES * o->tokens;
    for (int64_t t = 0; t < r->tokens; t++) {
        int64_t index = batch * o->tokens + r->number * r->tokens + t;
        r->window[t] = m->text.bytes + m->text.training + (int64_t)((double)room * (double)index / (double)all);
    }
}

/* Every rank gets the same number. */
static double validate(struct rank *r) {
    struct model *m = r->model;
    double sum = 0;
    for (int64_t batch = 0; batch < VALIDATION_BATCHES; batch++) {
        take_validation(r, batch);
        forward(r, r->tokens);
        loss(r);
        pthread_barrier_wait(&m->barrier); /* the losses of all blocks are there */
        sum += mean_loss(m);
        pthread_barrier_wait(&m->barrier); /* and have been read */
    }
    return sum / VALIDATION_BATCHES;
}

/* Rank 0 keeps the books. */
static void account(const struct rank *r, int64_t step) {
    struct model *m = r->model;
    if (m->progress.loss_steps == 0)
        memset(m->load, 0, (size_t)(m->options.layers * m->options.experts) * sizeof *m->load);
    m->progress.step = step;
    m->progress.loss_steps++;
    m->progress.loss_sum += mean_loss(m);
    for (int64_t l = 0; l < m->options.layers; l++)
        balance(r, l);
}

static void train_step(struct rank *r, int64_t step) {
    pthread_barrier_t *barrier = &r->model->barrier;
    take_batch(r, step);
    forward(r, r->tokens);
    loss(r);
    backward(r);
    pthread_barrier_wait(barrier); /* the gradients of all blocks are there */
    update_replicated(r, step);
    update_experts(r, step);
    if (r->number == 0)
        account(r, step);
    pthread_barrier_wait(barrier); /* so are the new parameters */
}

/* Ctrl-C ends training after the step in which it comes. */
static atomic_bool interrupted;

static void note_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = true;
}

static void train(struct rank *r) {
    struct model *m = r->model;
    const struct options *o = &m->options;
    double since = seconds_now();
    int64_t steps_since = 0;
    for (int64_t step = m->progress.step + 1; step <= o->steps && !m->stop; step++) {
        train_step(r, step);
        steps_since++;
        bool last = step == o->steps;
        if (last || step % o->report == 0) {
            double speed = (double)(steps_since * o->tokens) / (seconds_now() - since);
            double validation_loss = validate(r);
            if (r->number == 0)
                report(m, validation_loss, speed);
            since = seconds_now();
            steps_since = 0;
        }
        if (r->number == 0) {
            m->stop = !last && interrupted;
            if (last || m->stop || step % o->save == 0)
                save_checkpoint(m);
        }
        pthread_barrier_wait(&m->barrier);
    }
}

/* One byte at a time: rank 0 comes with one token, the other ranks with none, only with their experts. */
static void generate(struct rank *r) {
    struct model *m = r->model;
    const struct options *o = &m->options;
    int64_t tokens = r->number == 0 ? 1 : 0;
    for (int64_t i = 0; i < o->sample; i++) {
        r->window[0] = m->sample + i;
        forward(r, tokens);
        if (tokens == 0)
            continue;
        double weight[BYTES], sum = 0;
        for (int c = 0; c < BYTES; c++)
            sum += weight[c] = exp((double)r->logit[c] / TEMPERATURE);
        double left = random_at(o->seed, STREAM_SAMPLE, i) * sum;
        int c = 0;
        while (c < BYTES - 1 && left >= weight[c])
            left -= weight[c++];
        m->sample[o->context + i] = (uint8_t)c;
    }
}

static void make_layers(struct rank *r) {
    const struct options *o = &r->model->options;
    mmoe_layer_config config = mmoe_layer_config_default();
    config.hidden = o->hidden;
    config.intermediate = o->intermediate;
    config.experts = o->experts;
    config.top_k = o->top_k;
    for (int64_t l = 0; l < o->layers; l++) {
        check(mmoe_layer_create(r->group, &config, &r->layer[l]), "mmoe_layer_create");
        check(mmoe_saved_create(r->layer[l], MMOE_KEEP_ROWS, &r->saved[l]), "mmoe_saved_create");
    }
}

static void destroy_layers(struct rank *r) {
    for (int64_t l = 0; l < r->model->options.layers; l++) {
        mmoe_saved_destroy(&r->saved[l]);
        mmoe_layer_destroy(&r->layer[l]);
    }
}

static void *run_rank(void *argument) {
    struct rank *r = argument;
    make_layers(r);
    train(r);
    if (r->number == 0)
        signal(SIGINT, SIG_DFL); /* nothing is left to lose */
    if (!r->model->stop)
        generate(r);
    destroy_layers(r);
    return NULL;
}

/* A thread for each rank; megamoe makes the group that they share. */
static void run_ranks(struct model *m) {
    const struct options *o = &m->options;
    mmoe_group_config config = mmoe_group_config_default();
    config.max_tokens = o->tokens / o->ranks;
    config.max_hidden = o->hidden;
    config.max_top_k = o->top_k;
    config.max_experts = o->experts;
    mmoe_group *groups[TOKEN_BLOCKS];
    struct rank ranks[TOKEN_BLOCKS] = {0};
    pthread_t threads[TOKEN_BLOCKS];
    check(mmoe_group_create_threads(&config, (int)o->ranks, groups), "mmoe_group_create_threads");
    if (pthread_barrier_init(&m->barrier, NULL, (unsigned)o->ranks) != 0)
        die("no barrier for %" PRId64 " ranks", o->ranks);
    for (int i = 0; i < o->ranks; i++) {
        make_rank(&ranks[i], m, i);
        ranks[i].group = groups[i];
        int failure = pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
        if (failure != 0)
            die("no thread for rank %d: %s", i, strerror(failure));
    }
    for (int i = 0; i < o->ranks; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < o->ranks; i++) {
        mmoe_group_destroy(&groups[i]);
        clear_shelf(&ranks[i].shelf);
    }
    pthread_barrier_destroy(&m->barrier);
}

/* ---- Main --------------------------------------------------------------------------------------------------- */

/* The folder, and what lies in it: a new log, or the old one and the checkpoint up to which it is kept. */
static void open_folder(struct model *m) {
    if (mkdir(m->options.out, 0777) != 0 && errno != EEXIST)
        die("--out %s cannot be made: %s", m->options.out, strerror(errno));
    m->log = path_in(m, "log.csv");
    m->picture = path_in(m, "loss.svg");
    m->checkpoint = path_in(m, "checkpoint.bin");
    m->unfinished = path_in(m, "checkpoint.bin.new");
    if (!m->options.resume) {
        write_log(m->log, "w", LOG_HEAD);
        return;
    }
    load_checkpoint(m);
    round_experts(m, m->at.replicated, m->at.total - m->at.replicated);
    trim_log(m->log, m->progress.step);
}

/* Under torchrun and the like each process would train the whole model, and write to the same folder. */
static void refuse_other_processes(void) {
    const char *world = getenv("WORLD_SIZE");
    if (world != NULL && strcmp(world, "1") != 0)
        die("WORLD_SIZE is %s in the environment, expected 1: the ranks are threads of one process, see --ranks",
            world);
}

int main(int argc, char **argv) {
    struct model m = {.options = read_options(argc, argv)};
    const struct options *o = &m.options;
    refuse_other_processes();
    m.text = read_text(o->text, o->context);
    m.text_hash = hash_bytes(HASH_START, m.text.bytes, (size_t)m.text.count);
    make_model(&m);
    memcpy(m.sample, m.text.bytes + m.text.training, (size_t)o->context);
    open_folder(&m);
    show_configuration(&m);
    if (o->resume)
        printf("resumed after step %" PRId64 "\n\n", m.progress.step);
    printf("   step  train loss  validation loss  tokens/s  imbalance\n");

    openblas_set_num_threads(1); /* the ranks are the threads */
    struct sigaction on_interrupt = {.sa_handler = note_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &on_interrupt, NULL);
    run_ranks(&m);

    if (m.stop) {
        printf("\ninterrupted after step %" PRId64 "; --resume continues from %s\n", m.progress.step, m.checkpoint);
    } else {
        show_losses(&m);
        show_load(&m);
        show_sample(&m);
        printf("log      %s\n", m.log);
        draw_picture(&m);
        printf("weights  %s\n", m.checkpoint);
    }
    int result = m.stop ? 128 + SIGINT : EXIT_SUCCESS;
    free(m.text.bytes);
    clear_shelf(&m.shelf);
    return result;
}
