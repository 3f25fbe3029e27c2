/* The machine a record was made on. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stddef.h>

/* Cores that this process may use. */
int machine_cores(void);

/* The processor's name, "unknown" where the system does not say. */
void machine_cpu(char *name, size_t bytes);

/* Now, as "2026-01-31T12:00:00Z". */
void machine_date(char *text, size_t bytes);

/* The commit that the command was built from, "unknown" outside a repository. */
extern const char machine_commit[];

#endif
