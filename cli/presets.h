/* The MoE layers of published models, by name. */
#ifndef CLI_PRESETS_H
#define CLI_PRESETS_H

#include <stdint.h>

struct preset {
    const char *name;
    int64_t hidden, intermediate, experts, top_k;
    double limit; /* of the activation; 0: none */
    const char *note;
};

/* Ended by a NULL name. */
extern const struct preset presets[];

/* NULL when there is none of this name; letters of either case. */
const struct preset *preset_find(const char *name);

/* Tokens a rank brings with a preset when --tokens does not say, before scaling. */
#define PRESET_TOKENS 4096

/* H, I and the tokens become 1/scale, E too: rows an expert receives stay as many. H and I are rounded up to
 * multiples of 64; E is at least K, and is rounded up to a multiple of the ranks. */
struct preset preset_scaled(const struct preset *preset, int64_t scale, int64_t ranks);
int64_t preset_tokens(int64_t scale);

#endif
