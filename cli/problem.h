/* What is to be computed: the sizes, and every tensor's data, from files or from the seed.
 *
 * All is said of the whole problem: the tokens of all ranks one after the other in rank order, and all experts. So the
 * data do not depend on how many ranks share them, and any rank can make any part of it. */
#ifndef CLI_PROBLEM_H
#define CLI_PROBLEM_H

#include "npy.h"
#include "options.h"

/* Every tensor of a forward and a backward: first what may come from files, in the order of enum input. */
enum tensor {
    TENSOR_X = INPUT_X,
    TENSOR_DY = INPUT_DY,
    TENSOR_IDS = INPUT_IDS,
    TENSOR_WEIGHTS = INPUT_WEIGHTS,
    TENSOR_GATE = INPUT_GATE,
    TENSOR_UP = INPUT_UP,
    TENSOR_DOWN = INPUT_DOWN,
    TENSOR_Y = INPUTS,
    TENSOR_DX,
    TENSOR_DW,
    TENSOR_DGATE,
    TENSOR_DUP,
    TENSOR_DDOWN,
    TENSORS
};

struct problem {
    const struct options *options;
    mmoe_layer_config layer;
    int world;
    int rank;                          /* of this process when it is one rank; else -1: it has all ranks */
    int64_t tokens[MMOE_MAX_WORLD];    /* of each rank */
    int64_t first[MMOE_MAX_WORLD + 1]; /* first token of each rank; [world]: all tokens */
    struct npy_file file[INPUTS];
};

/* Reads a command's arguments (as options_read), puts them together and opens the files. On an error says why, and
 * returns its exit code with nothing open. */
int problem_open(struct problem *problem, struct options *options, const struct argp_option *own, const char *help,
                 int argc, char **argv);
void problem_close(struct problem *problem);

/* A rank's share of the experts. */
static inline int64_t problem_local_experts(const struct problem *problem) {
    return problem->layer.experts / problem->world;
}

/* The name of a tensor as in formulas; its type; its shape, where the first dimension counts tokens or experts. */
const char *tensor_name(enum tensor tensor);
enum npy_type tensor_type(enum tensor tensor);
bool tensor_of_experts(enum tensor tensor);
int tensor_shape(const struct problem *problem, enum tensor tensor, int64_t count, int64_t shape[3]);

/* Elements of one token or one expert. */
int64_t tensor_width(const struct problem *problem, enum tensor tensor);

/* Writes an input for tokens or experts first .. first+count-1, in the tensor's own type. */
void problem_fill(const struct problem *problem, enum tensor tensor, int64_t first, int64_t count, void *out);

#endif
