/* Time, for measuring and for waiting. */
#ifndef CLI_CLOCK_H
#define CLI_CLOCK_H

/* Seconds since an arbitrary start; never goes back. */
double clock_now(void);

#endif
