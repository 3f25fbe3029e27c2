"""Writes the first inputs of the .npy fuzz target: one small file of each kind that NumPy writes.

    python3 seeds.py FOLDER
"""

import itertools
import pathlib
import sys

import numpy

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for number, (kind, shape) in enumerate(
    itertools.product(["<f4", "<f8", "<i4", "<i8", "<u2", ">i4"], [(), (0,), (3,), (2, 3), (1, 2, 1, 2)])
):
    with open(folder / f"{number}.npy", "wb") as file:
        version = (2, 0) if number % 2 else (1, 0)
        numpy.lib.format.write_array(file, numpy.ones(shape, kind), version=version)
