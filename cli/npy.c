/* Reading and writing .npy files. */
#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [NPY_F32] = {"<f4", 4}, [NPY_F64] = {"<f8", 8}, [NPY_I32] = {"<i4", 4},
    [NPY_I64] = {"<i8", 8}, [NPY_U16] = {"<u2", 2},
};
#define TYPES ((int)(sizeof types / sizeof types[0]))

size_t npy_type_bytes(enum npy_type type) {
    return types[type].bytes;
}

const char *npy_type_name(enum npy_type type) {
    return types[type].name;
}

/* ---- The header: a Python dictionary of three entries ---- */

struct reader {
    const char *at, *end;
    char *error;
    size_t error_bytes;
};

static bool fail(struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(struct reader *reader, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, reader->error_bytes, format, arguments);
    va_end(arguments);
    return false;
}

static void skip_space(struct reader *reader) {
    while (reader->at < reader->end && isspace((unsigned char)*reader->at))
        reader->at++;
}

static bool next_is(struct reader *reader, char c) {
    skip_space(reader);
    if (reader->at == reader->end || *reader->at != c)
        return false;
    reader->at++;
    return true;
}

static bool next_word_is(struct reader *reader, const char *word) {
    skip_space(reader);
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

/* A quoted string without escapes, cut off at the room for it. */
static bool read_string(struct reader *reader, char *out, size_t bytes) {
    skip_space(reader);
    if (reader->at == reader->end || (*reader->at != '\'' && *reader->at != '"'))
        return fail(reader, "the header is no dictionary of descr, fortran_order and shape");
    char quote = *reader->at++;
    size_t length = 0;
    while (reader->at < reader->end && *reader->at != quote) {
        if (length + 1 < bytes)
            out[length++] = isprint((unsigned char)*reader->at) ? *reader->at : '?';
        reader->at++;
    }
    out[length] = '\0';
    return reader->at++ < reader->end ? true : fail(reader, "the header ends inside a string");
}

static bool read_type(struct reader *reader, struct npy *out) {
    char name[16];
    if (!read_string(reader, name, sizeof name))
        return false;
    for (int t = 0; t < TYPES; t++)
        if (!strcmp(name, types[t].name)) {
            out->type = (enum npy_type)t;
            return true;
        }
    return fail(reader, "the element type is '%s', expected <f4, <f8, <i4, <i8 or <u2", name);
}

static bool read_order(struct reader *reader) {
    if (next_word_is(reader, "False"))
        return true;
    if (next_word_is(reader, "True"))
        return fail(reader, "fortran_order is True, expected C order");
    return fail(reader, "fortran_order is neither True nor False");
}

static bool read_length(struct reader *reader, int64_t *length) {
    int64_t value = 0;
    if (reader->at == reader->end || !isdigit((unsigned char)*reader->at))
        return fail(reader, "the shape holds something that is no length");
    while (reader->at < reader->end && isdigit((unsigned char)*reader->at)) {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *reader->at - '0', &value))
            return fail(reader, "the shape holds a length of 2^63 or more");
        reader->at++;
    }
    *length = value;
    return true;
}

static bool read_shape(struct reader *reader, struct npy *out) {
    if (!next_is(reader, '('))
        return fail(reader, "the shape is no tuple");
    out->dims = 0;
    for (bool comma = true; !next_is(reader, ')'); comma = next_is(reader, ',')) {
        if (!comma)
            return fail(reader, "the shape is no tuple");
        if (out->dims == NPY_MAX_DIMS)
            return fail(reader, "the shape has more than %d dimensions", NPY_MAX_DIMS);
        if (!read_length(reader, &out->shape[out->dims++]))
            return false;
    }
    return true;
}

static bool read_entry(struct reader *reader, struct npy *out, unsigned *seen) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[32];
    if (!read_string(reader, key, sizeof key))
        return false;
    unsigned k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0)
        k++;
    if (k == 3 || *seen & 1u << k)
        return fail(reader, "the header has an entry '%s' %s", key, k == 3 ? "that is not known" : "twice");
    *seen |= 1u << k;
    if (!next_is(reader, ':'))
        return fail(reader, "the header's entry '%s' has no value", key);
    return k == 0 ? read_type(reader, out) : k == 1 ? read_order(reader) : read_shape(reader, out);
}

static bool read_dictionary(struct reader *reader, struct npy *out) {
    unsigned seen = 0;
    if (!next_is(reader, '{'))
        return fail(reader, "the header is no dictionary of descr, fortran_order and shape");
    for (bool comma = true; !next_is(reader, '}'); comma = next_is(reader, ',')) {
        if (!comma)
            return fail(reader, "the header is no dictionary of descr, fortran_order and shape");
        if (!read_entry(reader, out, &seen))
            return false;
    }
    skip_space(reader);
    if (seen != 7 || reader->at != reader->end)
        return fail(reader, "the header is not just descr, fortran_order and shape");
    return true;
}

/* ---- The whole file ---- */

/* Sets count; the data must be exactly the shape's bytes. */
static bool check_data(struct reader *reader, struct npy *out, size_t available) {
    char shape[128];
    npy_shape_text(out->shape, out->dims, shape, sizeof shape);
    bool empty = false;
    for (int d = 0; d < out->dims; d++)
        empty = empty || out->shape[d] == 0;
    int64_t bytes = empty ? 0 : (int64_t)types[out->type].bytes;
    for (int d = 0; d < out->dims && !empty; d++)
        if (__builtin_mul_overflow(bytes, out->shape[d], &bytes))
            return fail(reader, "the shape %s is too large", shape);
    if ((size_t)bytes != available)
        return fail(reader, "it holds %zu bytes of data, expected %lld for %s %s", available, (long long)bytes,
                    types[out->type].name, shape);
    out->count = bytes / (int64_t)types[out->type].bytes;
    return true;
}

int npy_parse(const unsigned char *bytes, size_t n, struct npy *out, char *error, size_t error_bytes) {
    struct reader reader = {.error = error, .error_bytes = error_bytes};
    *out = (struct npy){0};
    if (n < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        fail(&reader, "it is no .npy file");
        return -1;
    }
    int version = bytes[6];
    if (version != 1 && version != 2) {
        fail(&reader, "its format version is %d, expected 1 or 2", version);
        return -1;
    }
    size_t start = version == 1 ? 10 : 12;
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (version == 2 && n >= start)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (n < start || length > n - start) {
        fail(&reader, "it ends inside its header");
        return -1;
    }
    reader.at = (const char *)bytes + start;
    reader.end = reader.at + length;
    out->data = bytes + start + length;
    return read_dictionary(&reader, out) && check_data(&reader, out, n - start - length) ? 0 : -1;
}

double npy_number(const struct npy *array, int64_t i) {
    const unsigned char *at = array->data + (size_t)i * types[array->type].bytes;
    float f32;
    double f64;
    switch (array->type) {
    case NPY_F32:
        memcpy(&f32, at, sizeof f32);
        return f32;
    case NPY_F64:
        memcpy(&f64, at, sizeof f64);
        return f64;
    default:
        return (double)npy_integer(array, i);
    }
}

int64_t npy_integer(const struct npy *array, int64_t i) {
    const unsigned char *at = array->data + (size_t)i * types[array->type].bytes;
    uint16_t u16;
    int32_t i32;
    int64_t i64;
    switch (array->type) {
    case NPY_U16:
        memcpy(&u16, at, sizeof u16);
        return u16;
    case NPY_I32:
        memcpy(&i32, at, sizeof i32);
        return i32;
    default:
        memcpy(&i64, at, sizeof i64);
        return i64;
    }
}

void npy_shape_text(const int64_t *shape, int dims, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int d = 0; d < dims && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

void npy_header(enum npy_type type, const int64_t *shape, int dims, char header[NPY_HEADER_BYTES]) {
    char text[NPY_HEADER_BYTES];
    int used = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", types[type].name);
    for (int d = 0; d < dims; d++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%lld%s", (long long)shape[d],
                         d + 1 < dims || dims == 1 ? ", " : "");
    used += snprintf(text + used, sizeof text - (size_t)used, "), }");
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(NPY_HEADER_BYTES - 10);
    header[9] = 0;
    memset(header + 10, ' ', NPY_HEADER_BYTES - 10);
    memcpy(header + 10, text, (size_t)used);
    header[NPY_HEADER_BYTES - 1] = '\n';
}

/* ---- Files ---- */

static int map_file(struct npy_file *file, int descriptor, char *error, size_t error_bytes) {
    struct stat status;
    if (fstat(descriptor, &status)) {
        snprintf(error, error_bytes, "%s", strerror(errno));
        return -1;
    }
    if (!S_ISREG(status.st_mode) || status.st_size == 0) {
        snprintf(error, error_bytes, S_ISREG(status.st_mode) ? "it is empty" : "it is no regular file");
        return -1;
    }
    file->bytes = (size_t)status.st_size;
    file->map = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (file->map == MAP_FAILED) {
        file->map = NULL;
        snprintf(error, error_bytes, "%s", strerror(errno));
        return -1;
    }
    return 0;
}

int npy_open(struct npy_file *file, const char *path, char *error, size_t error_bytes) {
    *file = (struct npy_file){0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        snprintf(error, error_bytes, "%s", strerror(errno));
        return -1;
    }
    int failed = map_file(file, descriptor, error, error_bytes);
    close(descriptor);
    if (!failed && npy_parse(file->map, file->bytes, &file->array, error, error_bytes)) {
        npy_close(file);
        return -1;
    }
    return failed;
}

void npy_close(struct npy_file *file) {
    if (file->map)
        munmap(file->map, file->bytes);
    *file = (struct npy_file){0};
}
