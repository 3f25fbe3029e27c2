/* The machine and the build. */
#include "machine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char machine_commit[] = MEGAMOE_COMMIT;

int machine_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return (int)sysconf(_SC_NPROCESSORS_ONLN);
    return CPU_COUNT(&set);
}

void machine_cpu(char *name, size_t bytes) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(name, bytes, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0)
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(name, bytes, "%s", value + 2);
        break;
    }
    if (file)
        fclose(file);
}

void machine_date(char *text, size_t bytes) {
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, bytes, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}
