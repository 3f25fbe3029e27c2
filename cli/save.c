/* Saving tensors: rank 0 makes the files at their full size, every rank writes its part, rank 0 names them. */
#include "save.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"

static void name_of(const char *folder, enum tensor tensor, const char *suffix, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%s.npy%s", folder, tensor_name(tensor), suffix);
}

static int fail(struct share *share, const char *path, const char *what) {
    return rank_fail(share->rank, EXIT_RUN, "'%s' can't be %s: %s", path, what, strerror(errno));
}

static bool writable_folder(const char *folder) {
    struct stat status;
    return !stat(folder, &status) && S_ISDIR(status.st_mode) && !access(folder, W_OK | X_OK);
}

int save_check(const char *folder) {
    char copy[PATH_MAX];
    if (strlen(folder) > PATH_MAX - 32)
        return complain(EXIT_INPUT, "--save has %zu characters, expected at most %d", strlen(folder), PATH_MAX - 32);
    strcpy(copy, folder);
    bool there = !access(folder, F_OK);
    if (!writable_folder(there ? folder : dirname(copy)))
        return complain(EXIT_INPUT, "--save is '%s', expected a folder that can be written, or made", folder);
    return 0;
}

/* Writes all of it at an offset. */
static bool write_at(int descriptor, const void *data, size_t bytes, off_t offset) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = pwrite(descriptor, at, bytes, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        at += written;
        offset += written;
        bytes -= (size_t)written;
    }
    return true;
}

static int make_file(struct share *share, const char *folder, enum tensor tensor) {
    char path[PATH_MAX], header[NPY_HEADER_BYTES];
    const struct problem *problem = share->problem;
    int64_t shape[3];
    int64_t count = tensor_of_experts(tensor) ? problem->layer.experts : problem->first[problem->world];
    int dims = tensor_shape(problem, tensor, count, shape);
    off_t bytes = (off_t)(count * tensor_width(problem, tensor)) * (off_t)npy_type_bytes(tensor_type(tensor));
    npy_header(tensor_type(tensor), shape, dims, header);
    name_of(folder, tensor, ".part", path);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return fail(share, path, "made");
    if (ftruncate(descriptor, NPY_HEADER_BYTES + bytes) || !write_at(descriptor, header, sizeof header, 0))
        fail(share, path, "written");
    close(descriptor);
    return share->rank->code;
}

static int write_part(struct share *share, const char *folder, enum tensor tensor) {
    char path[PATH_MAX];
    size_t element = npy_type_bytes(tensor_type(tensor));
    int64_t first = share_first(share, tensor) * tensor_width(share->problem, tensor);
    name_of(folder, tensor, ".part", path);
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fail(share, path, "opened");
    bool good = write_at(descriptor, share->data[tensor], (size_t)share_elements(share, tensor) * element,
                         NPY_HEADER_BYTES + (off_t)first * (off_t)element);
    good &= close(descriptor) == 0;
    return good ? 0 : fail(share, path, "written");
}

static int name_file(struct share *share, const char *folder, enum tensor tensor) {
    char from[PATH_MAX], to[PATH_MAX];
    name_of(folder, tensor, ".part", from);
    name_of(folder, tensor, "", to);
    return rename(from, to) ? fail(share, to, "named") : 0;
}

static int remove_part(struct share *share, const char *folder, enum tensor tensor) {
    char path[PATH_MAX];
    (void)share;
    name_of(folder, tensor, ".part", path);
    return unlink(path);
}

typedef int file_step(struct share *share, const char *folder, enum tensor tensor);

/* After a forward alone the gradients are not there. */
static void each_tensor(struct share *share, const char *folder, file_step *step) {
    const int count = share->problem->options->forward ? TENSOR_Y + 1 : TENSORS;
    for (int t = 0; t < count; t++)
        step(share, folder, (enum tensor)t);
}

int save_tensors(struct share *share, const char *folder) {
    bool first = share->rank->index == 0;
    if (first && mkdir(folder, 0777) && errno != EEXIST)
        fail(share, folder, "made");
    if (first && !share->rank->code)
        each_tensor(share, folder, make_file);
    bool well = rank_all_well(share->rank);
    if (well) {
        each_tensor(share, folder, write_part);
        well = rank_all_well(share->rank);
    }
    if (first)
        each_tensor(share, folder, well ? name_file : remove_part);
    return share->rank->code;
}
