"""The library's failures as exceptions: one class a status, its message the library's own sentence."""

from megamoe._library import Status, last_error


class MegaMoEError(RuntimeError):
    """A call of the library failed. `status` is its mmoe_status."""

    status = None


class InvalidArgumentError(MegaMoEError, ValueError):
    """An argument of this rank is wrong; nothing was written."""

    status = Status.INVALID_ARGUMENT


class UnsupportedError(MegaMoEError, NotImplementedError):
    """A legal shape or option that the backend does not compute."""

    status = Status.UNSUPPORTED


class OutOfMemoryError(MegaMoEError, MemoryError):
    """An allocation failed."""

    status = Status.OUT_OF_MEMORY


class SystemCallError(MegaMoEError):
    """A call of the operating system or of a driver failed."""

    status = Status.SYSTEM


class MismatchError(MegaMoEError):
    """The ranks disagree: on a size, a version, or the order of calls."""

    status = Status.MISMATCH


class RefusedError(MegaMoEError):
    """Another rank refused this call."""

    status = Status.REFUSED


class CapacityError(MegaMoEError):
    """A rank was routed more rows than its fixed capacity; the same on all ranks."""

    status = Status.CAPACITY


class PeerTimeoutError(MegaMoEError, TimeoutError):
    """A peer did not come in time."""

    status = Status.TIMEOUT


class PeerLostError(MegaMoEError):
    """A peer died or gave up this call."""

    status = Status.PEER_LOST


class BrokenGroupError(MegaMoEError):
    """The group broke in an earlier call: its context has to be made again."""

    status = Status.BROKEN


BY_STATUS = {each.status: each for each in MegaMoEError.__subclasses__()}


def check(status):
    """Raises what `status` says, with the sentence of this thread's last failure."""
    if status != Status.OK:
        raise BY_STATUS.get(status, MegaMoEError)(last_error())
