/* cmocka, in the order it wants to be included. */
#ifndef CPU_CHECK_H
#define CPU_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
