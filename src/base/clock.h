/* Monotonic time. */
#ifndef MM_BASE_CLOCK_H
#define MM_BASE_CLOCK_H

/* Seconds since an arbitrary start; never goes back. */
double mm_now(void);

#endif
