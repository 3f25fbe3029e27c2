"""Trainers that aren't installed here, as rebuilt in interfaces/ from their public definitions."""

import sys
from contextlib import contextmanager
from pathlib import Path

INTERFACES = Path(__file__).parent / "interfaces"


@contextmanager
def imported_from(tree, package, plug):
    """While it lasts `package` is imported from interfaces/`tree`, and the plug anew, which may hold classes of it."""
    forget(package, plug)
    sys.path.insert(0, str(INTERFACES / tree))
    try:
        yield
    finally:
        sys.path.remove(str(INTERFACES / tree))
        forget(package, plug)


def forget(*names):
    for module in list(sys.modules):
        if any(module == name or module.startswith(f"{name}.") for name in names):
            del sys.modules[module]
