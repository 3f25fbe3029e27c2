/* Exits with 0 where the backend "cuda" can run, and with 77, which stands for "skipped", with a sentence where not. */
#include <stdio.h>
#include <string.h>

#include "megamoe.h"

int main(void) {
    for (int i = 0; i < mmoe_backend_count(); i++) {
        int present;
        const char *detail, *name = mmoe_backend(i, &present, &detail);
        if (strcmp(name, "cuda") == 0) {
            printf("%s: %s\n", present ? "GPU" : "skipped", detail);
            return present ? 0 : 77;
        }
    }
    puts("skipped: this build has no backend \"cuda\"");
    return 77;
}
