"""Runs files of these tests in a Python that has PyTorch and pytest.

    run.py FILE...

That is the one of scripts/python-environment, else this one. Where neither has them it says "not run" and exits with
77, which is ctest's word for skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OWN = HERE.parents[1] / "build/python/bin/python"
HAS_BOTH = ("import sys; from importlib.util import find_spec;"
            "sys.exit(not all(map(find_spec, ('torch', 'pytest'))))")


def pythons():
    return [python for python in (OWN, sys.executable)
            if Path(python).exists() and subprocess.run([python, "-c", HAS_BOTH], check=False).returncode == 0]


def main(files):
    found = pythons()
    if not found:
        print("not run: no Python with PyTorch and pytest; scripts/python-environment makes one")
        return 77
    os.execv(found[0], [found[0], "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
                        *(HERE / file for file in files)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
