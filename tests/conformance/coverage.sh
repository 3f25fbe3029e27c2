#!/bin/bash
# Every operation that isa.cuh declares is used by a kernel of the conformance suite.
#
#     coverage.sh SOURCE_FOLDER
set -euo pipefail
cd "$1"

operations=$(grep -oE '^(template <[^>]*> )?MM_DEVICE [^(]*\(' src/kernels/isa.cuh | grep -oE '[a-z0-9_]+\($' | tr -d '(' | sort -u)
count=$(wc -w <<<"$operations")
((count > 80)) || { echo "found only $count operations: has the form of isa.cuh changed?"; exit 1; }
missing=0
for operation in $operations; do
    grep -qwF "$operation" tests/conformance/*.cu tests/conformance/tools.cuh || { echo "in no kernel: $operation"; missing=1; }
done
echo "$count operations"
exit "$missing"
