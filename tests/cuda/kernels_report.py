"""What the compiler said of each kernel: no spills where none are allowed, and no wgmma that it had to serialise.

Exits with 77 when there is nothing to read: the build has no nvcc.
"""

import argparse
import re
import sys
from pathlib import Path

SKIPPED = 77
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SERIALISED = re.compile(r"wgmma.*serializ|C7510", re.IGNORECASE)


def kernels_in(text):
    """(name, bytes spilled, registers) of each kernel in a report."""
    parts = ENTRY.split(text)
    for name, said in zip(parts[1::2], parts[2::2]):
        spills, registers = SPILLS.search(said), REGISTERS.search(said)
        if not spills or not registers:
            raise ValueError(f"nothing about spills or registers of {name}")
        yield name, int(spills[1]) + int(spills[2]), int(registers[1])


def faults_in(reports, without_spills):
    faults, found = [], set()
    for report in reports:
        text = report.read_text(encoding="utf-8")
        faults += [f"{report.name}: {line.strip()}" for line in text.splitlines() if SERIALISED.search(line)]
        for name, spilled, registers in kernels_in(text):
            found.add(name)
            print(f"{name:<24} {registers:>4} registers {spilled:>6} bytes spilled")
            if spilled and name in without_spills:
                faults.append(f"{report.name}: {name} spills {spilled} bytes, expected none")
    faults += [f"{name} is in the list of kernels without spills, but was not compiled" for name in without_spills - found]
    return faults


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--reports", type=Path, required=True, help="the folder where the build left *.report")
    arguments.add_argument("--sources", type=Path, required=True, help="the folder of the kernels")
    arguments.add_argument("--without-spills", type=Path, required=True, help="a file with a kernel's name in each line")
    options = arguments.parse_args()
    reports = [report for report in sorted(options.reports.glob("*.report"))
               if (options.sources / f"{report.stem}.cu").exists()]  # a kernel that is gone may have left one
    if not reports:
        print("skipped: no kernel was compiled, this build has no nvcc")
        return SKIPPED
    faults = faults_in(reports, set(options.without_spills.read_text(encoding="utf-8").split()))
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
