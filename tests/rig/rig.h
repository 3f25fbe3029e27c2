/* Everything the tests share: seeded data and routings, guarded operands, ranks under a watchdog, the oracle. */
#ifndef RIG_RIG_H
#define RIG_RIG_H

/* cmocka needs these first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rig/allocation.h"
#include "rig/batch.h"
#include "rig/compare.h"
#include "rig/device.h"
#include "rig/plans.h"
#include "rig/random.h"
#include "rig/routing.h"
#include "rig/step.h"
#include "rig/tensor.h"
#include "rig/world.h"

#endif
