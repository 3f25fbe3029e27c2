/* Reading and checking expert ids and their weights. */
#include <math.h>

#include "plan/ids.h"

#include "base/error.h"

mmoe_status mm_id_check(int64_t id, int64_t experts, const char *name, int64_t token, int64_t slot) {
    if (id >= -1 && id < experts)
        return MMOE_OK;
    return mm_fail(MMOE_INVALID_ARGUMENT, "%s at token %lld, slot %lld is %lld, expected -1 or 0 .. %lld", name,
                   (long long)token, (long long)slot, (long long)id, (long long)experts - 1);
}

mmoe_status mm_weight_check(float weight, int64_t token, int64_t slot) {
    if (isfinite(weight))
        return MMOE_OK;
    return mm_fail(MMOE_INVALID_ARGUMENT, "weights at token %lld, slot %lld is %g, expected a finite number",
                   (long long)token, (long long)slot, (double)weight);
}

mmoe_status mm_ids_read(const mmoe_tensor *ids, int64_t experts, const char *name, int32_t *out) {
    for (int64_t token = 0; token < ids->shape[0]; token++)
        for (int64_t slot = 0; slot < ids->shape[1]; slot++) {
            int64_t id = mm_id_at(ids, token, slot);
            mmoe_status status = mm_id_check(id, experts, name, token, slot);
            if (status != MMOE_OK)
                return status;
            *out++ = (int32_t)id;
        }
    return MMOE_OK;
}
