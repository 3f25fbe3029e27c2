"""What this installation can do on this machine, asked before anything is made."""

from ctypes import byref

from megamoe._library import CapacityPolicy, Combine, WeightOn, backends, library


def backend_of(device):
    """The name of the backend for a device: "cuda" of "cuda:1", and of the torch.device."""
    return str(device).split(":", maxsplit=1)[0]


def is_available(device="cuda"):
    """Whether the layer runs on tensors of `device` ("cuda", "cpu" or a torch.device) on this machine."""
    return unavailable_reason(device) is None


def unavailable_reason(device="cuda"):
    """Why it does not, as one sentence; None when it does."""
    try:
        found = backends()
    except OSError as error:
        return f"the library can't be loaded: {error}"
    for name, present, detail in found:
        if name == backend_of(device):
            return None if present else detail
    return f"device is {str(device)!r}, expected one of {', '.join(repr(name) for name, _, _ in found)}"


def status():
    """What is there, a line each: the library's version, and each backend with what it found."""
    try:
        lines = [f"megamoe {library().mmoe_version().decode()}"]
        lines += [f"{name}: {'available' if present else 'not available'}: {detail}"
                  for name, present, detail in backends()]
    except OSError as error:
        lines = [f"megamoe: not available: the library can't be loaded: {error}"]
    return "\n".join(lines)


def layer_config(*, hidden, intermediate, experts, top_k, weight_on="output", limit=0.0, capacity=None, drop=False,
                 check_weights=True, combine="exact"):
    """A mmoe_layer_config from the options that `Context.layer` and `unsupported_reason` share."""
    if weight_on not in ("output", "input"):
        raise ValueError(f"weight_on is {weight_on!r}, expected 'output' or 'input'")
    if combine not in ("exact", "grouped"):
        raise ValueError(f"combine is {combine!r}, expected 'exact' or 'grouped'")
    config = library().mmoe_layer_config_default()
    config.hidden, config.intermediate, config.experts, config.top_k = hidden, intermediate, experts, top_k
    config.weight_on = WeightOn[weight_on.upper()]
    config.combine = Combine[combine.upper()]
    config.limit = limit
    config.capacity_policy = CapacityPolicy.GROW if capacity is None else CapacityPolicy.FIXED
    config.capacity = 0 if capacity is None else capacity
    config.drop, config.check_weights = drop, check_weights
    return config


def unsupported_reason(*, world=1, device="cuda", activation="silu", bias=False, **options):
    """Why the layer can't be computed over `world` ranks on `device`, as one sentence; None when it can.

    The options are those of `Context` and `Context.layer`: hidden, intermediate, experts, top_k, and if they are not
    the defaults weight_on, limit, capacity, drop, check_weights, combine. `activation` ("silu": silu(gate) * up) and
    `bias` are asked here so that whoever plugs the layer into a model has one place to ask.
    """
    if activation not in ("silu", "swish"):
        return f"activation is {activation!r}, expected 'silu': h = silu(gate) * up"
    if bias:
        return "the experts have biases, expected none"
    reason = unavailable_reason(device)
    if reason is None:
        found = library().mmoe_unsupported_reason(backend_of(device).encode(), byref(layer_config(**options)), world)
        reason = None if found is None else found.decode()
    return reason
