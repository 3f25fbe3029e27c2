/* A program of a user: what an installed copy must be able to build and run. */
#include <megamoe.h>
#include <stdio.h>

int main(void) {
    mmoe_group_config config = mmoe_group_config_default();
    config.max_tokens = config.max_hidden = config.max_top_k = config.max_experts = 8;
    mmoe_group *group = NULL;
    if (mmoe_group_create_threads(&config, 1, &group) != MMOE_OK)
        return fprintf(stderr, "%s\n", mmoe_last_error()), 1;
    printf("megamoe %s, %d rank\n", mmoe_version(), mmoe_group_world(group));
    mmoe_group_destroy(&group);
    return 0;
}
