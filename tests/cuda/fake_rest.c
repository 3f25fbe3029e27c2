/* Every function of the driver that fake_driver.c does not answer; with FAKE_LACKS_SOME they are missing. */
#include "cuda/driver_api.h"

#ifndef FAKE_LACKS_SOME

#define MM_DRIVER_FUNCTION(name, symbol, arguments)                                                                    \
    __attribute__((weak)) mm_cu_result symbol(void);                                                                   \
    mm_cu_result symbol(void) {                                                                                        \
        return MM_CUDA_ERROR_NOT_SUPPORTED;                                                                            \
    }
#include "cuda/driver_functions.def"
#endif
