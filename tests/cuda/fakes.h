/* Using a fake driver from a test. */
#ifndef FAKES_H
#define FAKES_H

/* libcuda_NAME.so of those that CMakeLists.txt makes. */
void fake_use(const char *name);

/* Objects of the fake in use that were made and not freed. */
int fake_living(void);

#endif
