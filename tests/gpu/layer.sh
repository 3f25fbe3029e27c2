#!/bin/sh
# tests/gpu/layer.sh FOLDER: the whole layer on this machine's GPU, with the programs that pack.sh has put into a folder:
# against the oracle at small shapes of every kind, and at the shapes of published models with few tokens.
set -eu
folder=$1
export LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MMOE_TEST_BACKEND=cuda
failed=0
"$folder/megamoe" info --hidden 64 --intermediate 64 | sed -n '1,/^$/!{/^$/q;p}'
for program in cuda_forward cuda_calls cuda_layer; do
    "$folder/$program" >"$folder/$program.txt" 2>&1 || failed=1
    grep -E 'PASSED|FAILED|ERROR' "$folder/$program.txt" | sed "s/^/$program /"
done
# hidden intermediate experts top-k tokens
while read -r hidden intermediate experts top_k tokens; do
    for keep in plan rows; do
        "$folder/megamoe" check --backend cuda --hidden "$hidden" --intermediate "$intermediate" \
            --experts "$experts" --top-k "$top_k" --tokens "$tokens" --keep "$keep" || failed=1
    done
done <<SHAPES
2048 768 16 8 256
4096 1536 8 4 128
1408 2816 8 2 100
2880 2880 4 4 64
SHAPES
exit $failed
