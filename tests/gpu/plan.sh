#!/bin/sh
# Builds and runs the routing plan kernels' comparison and timing on a machine with a GPU, nvcc and gcc; to be started
# in the root of the repository. The table also goes to $OUT/plan.txt when OUT is set.
set -eu
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
for kernel in call_enter plan_count plan_place; do
    nvcc -std=c++17 -cubin -gencode=arch=compute_90a,code=sm_90a -Isrc -o "$build/$kernel.cubin" "src/kernels/$kernel.cu"
done
gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Iinclude -Isrc -Itests -o "$build/plan_gpu" tests/gpu/plan_gpu.c \
    tests/plan_kernel/device_plan.c tests/rig/routing.c src/plan/*.c src/base/error.c src/base/memory.c \
    src/cuda/driver.c src/cuda/kernel.c src/cuda/device_memory.c -ldl -lm
"$build/plan_gpu" "$build"/*.cubin >"$build/plan.txt" || failed=1
cat "$build/plan.txt"
if [ -n "${OUT:-}" ]; then
    cp "$build/plan.txt" "$OUT/plan.txt"
fi
exit "${failed:-0}"
