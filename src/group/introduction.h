/* How the ranks of an adopted group, which meet in memory alone, come to know one another. */
#ifndef MM_GROUP_INTRODUCTION_H
#define MM_GROUP_INTRODUCTION_H

#include "group/group.h"

/* Writes this rank's hello into every segment that it knows. Waits for nobody. */
void mm_introduce(const struct mmoe_group *group);

/* Waits for every peer's introduction (arrive limit) and compares. MMOE_MISMATCH names a field in which two ranks
 * differ, and both values. Costs a look at each introduction once the ranks have agreed. */
mmoe_status mm_introductions_check(const struct mmoe_group *group);

#endif
