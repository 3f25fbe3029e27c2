/* Operands of a call in the memory of the group's device, where its backend has one. */
#ifndef RIG_DEVICE_H
#define RIG_DEVICE_H

#include "rig/step.h"

/* What a call's operands are on the device; zeroed while they are in host memory. */
struct rig_placed {
    void *memory[RIG_OPERANDS];   /* of the device, a copy of the tensor's memory with its guards */
    void **experts[RIG_OPERANDS]; /* addresses on the device */
};

/* Copies the operands to the device and makes the call's arguments point there. */
bool rig_call_place(struct rig_rank *rank, struct rig_call *call, struct rig_placed *placed);

/* Copies them back to where rig_call_take_... look. */
bool rig_call_fetch(struct rig_rank *rank, struct rig_call *call, const struct rig_placed *placed);

/* Copies to the device, and from it what calls have written on the stream that rig_call_make gives them. */
bool rig_send(struct rig_rank *rank, void *to, const void *from, size_t bytes);
bool rig_fetch(struct rig_rank *rank, void *to, const void *from, size_t bytes);

void rig_placed_free(struct rig_rank *rank, struct rig_placed *placed);

/* Fills with bytes `poison` what a rank's device has for the data of calls: at first all that the ranks share of it,
 * before any rank makes a call; between two calls what this rank alone writes until the next one, or what peers write
 * there only once it has begun. True where the backend has no device. */
bool rig_poison_shared(struct rig_rank *rank, int poison);
bool rig_poison_scratch(struct rig_rank *rank, int poison);

/* GPUs that ranks can take one each, of the machine or of a simulated driver. In a process of its own: a driver that
 * was started is of no use to ranks that are forked later. */
int rig_count_gpus(void);

/* By a test: skips it, and says so, where there are fewer GPUs. In this process, which may use its driver already. (A
 * set-up that skips counts as failed.) */
void rig_need_gpus(int count);

/* Whether the GPUs are simulated ones: their driver is named by the environment. */
bool rig_simulated(void);

/* Keeps the contexts of as many ranks' devices of a backend, which take long to make, from now to the end of the
 * program. */
void rig_hold_devices(const char *backend, int ranks);

#endif
