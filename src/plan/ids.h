/* Expert ids, and the weights beside them, as the caller gives them; ids read into the form that plans are made of. */
#ifndef MM_PLAN_IDS_H
#define MM_PLAN_IDS_H

#include "megamoe.h"

/* The id of a slot of ids [T, K], int32 or int64 of any strides: wide, as the caller gave it, since an int64 id that is
 * cut to 32 bits first could turn into a legal one. */
static inline int64_t mm_id_at(const mmoe_tensor *ids, int64_t token, int64_t slot) {
    int64_t offset = token * ids->stride[0] + slot * ids->stride[1];
    return ids->dtype == MMOE_I64 ? ((const int64_t *)ids->data)[offset] : ((const int32_t *)ids->data)[offset];
}

/* MMOE_INVALID_ARGUMENT unless `id` is -1 or 0 .. experts-1; the text names `name`, token and slot. */
mmoe_status mm_id_check(int64_t id, int64_t experts, const char *name, int64_t token, int64_t slot);

/* MMOE_INVALID_ARGUMENT unless `weight` is finite; the text names token and slot. */
mmoe_status mm_weight_check(float weight, int64_t token, int64_t slot);

/* Reads ids [T, K], int32 or int64 of any strides, into contiguous `out`. Every id is compared before it is narrowed;
 * the first bad one ends with mm_id_check's status, and `out` may be partly written then. */
mmoe_status mm_ids_read(const mmoe_tensor *ids, int64_t experts, const char *name, int32_t *out);

#endif
