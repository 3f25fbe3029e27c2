/* The MoE layers of published models. */
#include "presets.h"

#include <stddef.h>
#include <strings.h>

const struct preset presets[] = {
    {"Qwen3-30B-A3B", 2048, 768, 128, 8, 0, ""},
    {"Qwen3-235B-A22B", 4096, 1536, 128, 8, 0, ""},
    {"Qwen3.5-35B-A3B", 2048, 512, 256, 8, 0, ""},
    {"GLM-4.5-Air", 4096, 1408, 128, 8, 0, ""},
    {"DeepSeek-V3", 7168, 2048, 256, 8, 0, ""},
    {"DeepSeek-V4-Flash", 4096, 2048, 256, 6, 10, "limit 10"},
    {"MiniMax-M2", 3072, 1536, 256, 8, 0, ""},
    {"gpt-oss-120b", 2880, 2880, 128, 4, 0, "its shape only: no bias, plain silu"},
    {"Mixtral-8x7B", 4096, 14336, 8, 2, 0, ""},
    {0},
};

const struct preset *preset_find(const char *name) {
    for (const struct preset *preset = presets; preset->name; preset++)
        if (!strcasecmp(preset->name, name))
            return preset;
    return NULL;
}

static int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

struct preset preset_scaled(const struct preset *preset, int64_t scale, int64_t ranks) {
    struct preset out = *preset;
    if (scale == 1)
        return out;
    out.hidden = round_up((out.hidden + scale - 1) / scale, 64);
    out.intermediate = round_up((out.intermediate + scale - 1) / scale, 64);
    out.experts = (out.experts + scale - 1) / scale;
    if (out.experts < out.top_k)
        out.experts = out.top_k;
    out.experts = round_up(out.experts, ranks);
    return out;
}

int64_t preset_tokens(int64_t scale) {
    return (PRESET_TOKENS + scale - 1) / scale;
}
