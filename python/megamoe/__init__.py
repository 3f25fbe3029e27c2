"""megamoe: a whole mixture-of-experts layer for training, over all ranks that share its experts.

    context = megamoe.Context(process_group, max_tokens=T, hidden=H, top_k=K, experts=E)
    experts = megamoe.MegaMoE(context.layer(intermediate=I))
    y = experts(x, ids, weights)
"""

from megamoe import ops
from megamoe._status import is_available, status, unavailable_reason, unsupported_reason
from megamoe.context import Context
from megamoe.errors import (BrokenGroupError, CapacityError, InvalidArgumentError, MegaMoEError, MismatchError,
                            OutOfMemoryError, PeerLostError, PeerTimeoutError, RefusedError, SystemCallError,
                            UnsupportedError)
from megamoe.functional import moe
from megamoe.layer import Layer
from megamoe.module import MegaMoE
from megamoe.router import Router, route
