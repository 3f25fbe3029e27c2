#!/bin/sh
# tests/gpu/pack.sh BUILD FOLDER: puts the backend's test programs and the command of a build into a folder, with the
# libraries they need besides the C library, for a machine with a GPU and nothing installed; layer.sh runs them there.
set -eu
build=$1
folder=$2
mkdir -p "$folder/lib"
for program in cuda_forward cuda_calls cuda_layer; do
    cp "$build/tests/cuda/$program" "$folder/"
done
cp "$build/cli/megamoe" "$folder/"
for program in "$folder"/cuda_layer "$folder"/megamoe; do
    ldd "$program" | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libc|libm|libdl|libpthread)\.so' |
        while read -r library; do
            cp -L "$library" "$folder/lib/"
        done
done
strip "$folder"/cuda_* "$folder/megamoe"
