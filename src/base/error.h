/* Error text: one sentence for the calling thread, set where the error is found.
 *
 * Format of a sentence: the argument, its value, what was expected. Text from a peer is copied in, so that
 * it outlives the peer. */
#ifndef MM_BASE_ERROR_H
#define MM_BASE_ERROR_H

#include "megamoe.h"

#define MM_ERROR_BYTES 512

/* Sets the calling thread's error text and returns `status`, so that a check reads
 * `return mm_fail(MMOE_INVALID_ARGUMENT, "...", ...);`. The arguments may point into the current text. */
mmoe_status mm_fail(mmoe_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* mm_fail for a failed system call: appends ": " and the text of errno value `error`. */
mmoe_status mm_fail_system(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
