/* Sizes and offsets of a rank's symmetric segment. */
#include "group/layout.h"

#include <stddef.h>

/* What all versions agree on. */
_Static_assert(offsetof(struct mm_control, doorbell) == 0, "the doorbell has moved");
_Static_assert(offsetof(struct mm_control, progress) == 128, "progress has moved");
_Static_assert(offsetof(struct mm_control, pulse) == 256, "pulse has moved");
_Static_assert(offsetof(struct mm_control, abort) == 384, "the aborts have moved");
_Static_assert(sizeof(struct mm_abort) == 512, "the aborts have grown");
_Static_assert(offsetof(struct mm_control, introduction) == 384 + 64 * 512, "the introductions have moved");
_Static_assert(sizeof(struct mm_introduction) == 384, "the introductions have grown");
_Static_assert(offsetof(struct mm_introduction, hello) == 128, "the hellos have moved");

/* Reserves `count` elements at the end of the layout and returns their offset. */
static size_t reserve(struct mm_layout *layout, int64_t count, size_t element) {
    size_t offset = layout->bytes;
    layout->bytes = offset + mm_align((size_t)count * element);
    return offset;
}

struct mm_layout mm_layout_of(const mmoe_group_config *config, int world) {
    const int64_t slots = config->max_tokens * config->max_top_k;
    struct mm_layout layout = {.ids_stride = (size_t)slots * sizeof(int32_t),
                               .weights_stride = (size_t)slots * sizeof(float)};
    layout.control = reserve(&layout, 1, sizeof(struct mm_control));
    layout.x = reserve(&layout, config->max_tokens * config->max_hidden, sizeof(uint16_t));
    layout.dy = reserve(&layout, config->max_tokens * config->max_hidden, sizeof(uint16_t));
    layout.ids = reserve(&layout, world * slots, sizeof(int32_t));
    layout.weights = reserve(&layout, world * slots, sizeof(float));
    layout.combine = reserve(&layout, slots * config->max_hidden, sizeof(uint16_t));
    layout.dw = reserve(&layout, slots, sizeof(float));
    return layout;
}
