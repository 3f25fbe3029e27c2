/* Poison of fresh memory: each aligned_alloc of the program is filled with a byte. */
#ifndef RIG_ALLOCATION_H
#define RIG_ALLOCATION_H

/* From now on, also in ranks started later: 0xff is NaN, 0x7f a large finite number. */
void rig_poison_allocations(int byte);

#endif
