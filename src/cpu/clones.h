/* MM_CLONES before a hot loop's function: compiled once for each vector width, chosen when the library is loaded.
 *
 * Bits are the same in every clone: nothing is contracted (-ffp-contract=off), no sum is reordered. Off under
 * sanitizers, whose run time is not ready when the choice is made. */
#ifndef MM_CPU_CLONES_H
#define MM_CPU_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) &&                       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MM_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define MM_CLONES
#endif

#endif
