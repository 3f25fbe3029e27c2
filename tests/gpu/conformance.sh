#!/bin/bash
# Builds the conformance suite with nvcc and g++ and runs it on this machine's GPU, from the repository root:
#
#     tests/gpu/conformance.sh [--build-only]
#
# The build lies in $BUILD (default build/conformance). The table is also written to $OUT/conformance.txt when OUT is
# set. Exit status: 0 all passed, 1 some failed, 2 nothing could run.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${BUILD:-build/conformance}
mkdir -p "$build"
rm -f "$build"/*.cubin
for tool in nvcc gcc g++; do
    command -v "$tool" >/dev/null || { echo "conformance: not run: no $tool"; exit 2; }
done

compile_kernels() {
    nvcc -std=c++17 -O3 -cubin -gencode=arch=compute_90a,code=sm_90a -Isrc -o "$2" "$1" >"$2.log" 2>&1 || {
        cat "$2.log"
        return 1
    }
}
cubins=()
for source in tests/conformance/*.cu; do
    cubin=$build/$(basename "$source" .cu).cubin
    cubins+=("$cubin")
    compile_kernels "$source" "$cubin" &
    while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n; done
done
wait
for cubin in "${cubins[@]}"; do
    [[ -s $cubin ]] || { echo "conformance: not run: $cubin did not compile"; exit 2; }
done

objects=()
for source in src/base/error.c src/cuda/{driver,device,kernel}.c; do
    object=$build/$(basename "$source").o
    objects+=("$object")
    gcc -std=c11 -O2 -D_GNU_SOURCE -Iinclude -Isrc -c -o "$object" "$source"
done
g++ -std=c++17 -O1 -D_GNU_SOURCE -Iinclude -Isrc -Itests/conformance -o "$build/conformance_gpu" \
    tests/conformance/*_cases.cc tests/conformance/cases.cc tests/conformance/machine.cc tests/gpu/conformance/*.cc \
    "${objects[@]}" -ldl
[[ ${1-} == --build-only ]] && exit 0

status=0
"$build/conformance_gpu" "${cubins[@]}" >"$build/conformance.txt" || status=$?
cat "$build/conformance.txt"
[[ -z ${OUT-} ]] || cp "$build/conformance.txt" "$OUT/"
exit "$status"
