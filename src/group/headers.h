/* What the headers of one call say together. */
#ifndef MM_GROUP_HEADERS_H
#define MM_GROUP_HEADERS_H

#include "group/group.h"

/* The headers of all ranks are in. MMOE_REFUSED names the lowest rank that refused; MMOE_MISMATCH names a field in
 * which a peer differs from this rank, and both values. */
mmoe_status mm_headers_check(const struct mmoe_group *group);

/* What rank `peer` and this rank have said of a call: MMOE_MISMATCH likewise. */
mmoe_status mm_agreement_compare(const struct mmoe_group *group, int peer, const struct mm_agreement *theirs,
                                 const struct mm_agreement *ours);

#endif
