/* Using a fake driver; see fakes.h. */
#include "fakes.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cmocka needs the headers above first */
#include <cmocka.h>

void fake_use(const char *name) {
    char path[512];
    snprintf(path, sizeof path, FAKES "/libcuda_%s.so", name);
    assert_int_equal(setenv("MEGAMOE_LIBCUDA", path, 1), 0);
}

int fake_living(void) {
    void *library = dlopen(getenv("MEGAMOE_LIBCUDA"), RTLD_NOW);
    int (*count)(void);
    assert_non_null(library);
    void *found = dlsym(library, "fake_living");
    assert_non_null(found);
    memcpy(&count, &found, sizeof count);
    int result = count();
    dlclose(library);
    return result;
}
