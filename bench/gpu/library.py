"""The products and the layer of libbench_gpu.so (bench.h), on tensors or bare addresses."""

import ctypes

NUMBER, INT, ADDRESS, TEXT = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p

FUNCTIONS = {
    "bench_error": (TEXT, []),
    "bench_products_make": (INT, [NUMBER, NUMBER, NUMBER, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ADDRESS)]),
    "bench_products_free": (None, [ADDRESS]),
    "bench_products_first_row": (NUMBER, [ADDRESS, NUMBER]),
    "bench_products_bind": (INT, [ADDRESS, TEXT, ADDRESS]),
    "bench_products_run": (INT, [ADDRESS, TEXT, INT, INT, ADDRESS]),
    "bench_group_make": (INT, [TEXT, TEXT, INT, NUMBER, NUMBER, NUMBER, NUMBER, ctypes.POINTER(ADDRESS)]),
    "bench_group_free": (None, [ADDRESS]),
    "bench_layer_make": (INT, [ADDRESS, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, INT, INT,
                               ctypes.POINTER(ADDRESS)]),
    "bench_layer_free": (None, [ADDRESS]),
    "bench_layer_bind": (INT, [ADDRESS, TEXT, ADDRESS]),
    "bench_layer_forward": (INT, [ADDRESS, NUMBER, INT, ADDRESS]),
    "bench_layer_backward": (INT, [ADDRESS, NUMBER, INT, INT, INT, ADDRESS]),
    "bench_layer_seconds": (ctypes.c_double, [ADDRESS, TEXT]),
    "bench_layer_count": (NUMBER, [ADDRESS, TEXT]),
}

KEEP_PLAN, KEEP_ROWS = 0, 1


class Failure(Exception):
    """What a function of the library said when it failed."""


class Library:
    def __init__(self, path):
        self.functions = ctypes.CDLL(str(path))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self.functions, name)
            function.restype, function.argtypes = result, arguments

    def call(self, name, *arguments):
        """A function that returns a status."""
        if getattr(self.functions, name)(*arguments) != 0:
            raise Failure(self.functions.bench_error().decode())


def address_of(tensor):
    """Of a tensor; a number is an address already."""
    return tensor if isinstance(tensor, int) else tensor.data_ptr()


class Made:
    """An object of the library, until the end of its `with` block."""

    def __init__(self, library, prefix, *arguments):
        self.library, self.prefix = library, prefix
        self.handle = ADDRESS()
        library.call(f"{prefix}_make", *arguments, ctypes.byref(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        getattr(self.library.functions, f"{self.prefix}_free")(self.handle)

    def number(self, name, *arguments):
        return getattr(self.library.functions, f"{self.prefix}_{name}")(self.handle, *arguments)


class Bound(Made):
    """One with named operands, which it keeps alive."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.operands = {}

    def __exit__(self, *_):
        super().__exit__()
        self.operands = {}

    def bind(self, **operands):
        for name, tensor in operands.items():
            self.library.call(f"{self.prefix}_bind", self.handle, name.encode(), address_of(tensor))
            self.operands[name] = tensor


class Products(Bound):
    """The grouped products over experts with these numbers of rows."""

    def __init__(self, library, hidden, intermediate, rows):
        counts = (ctypes.c_int32 * len(rows))(*rows)
        super().__init__(library, "bench_products", hidden, intermediate, len(rows), counts)
        self.first_rows = [self.number("first_row", expert) for expert in range(len(rows) + 1)]

    def run(self, product, wide=False, accumulate=False, stream=0):
        self.library.call("bench_products_run", self.handle, product.encode(), wide, accumulate, stream)


class Group(Made):
    """One rank alone, or with a world of more this process's rank of those that the environment names."""

    def __init__(self, library, hidden, experts, top_k, max_tokens, world=1, name="", backend="cuda"):
        super().__init__(library, "bench_group", backend.encode(), name.encode(), world, hidden, experts, top_k,
                         max_tokens)


class Layer(Bound):
    """The whole layer on one rank of a group. Its buffers grow, unless it has a capacity; its combine is exact, unless
    it is `grouped`."""

    def __init__(self, group, hidden, intermediate, experts, top_k, keep, capacity=0, grouped=False):
        super().__init__(group.library, "bench_layer", group.handle, hidden, intermediate, experts, top_k, capacity,
                         keep, grouped)

    def forward(self, tokens, timed=False, stream=0):
        self.library.call("bench_layer_forward", self.handle, tokens, timed, stream)

    def backward(self, tokens, wide=False, accumulate=False, timed=False, stream=0):
        self.library.call("bench_layer_backward", self.handle, tokens, wide, accumulate, timed, stream)

    def seconds(self, phase):
        return self.number("seconds", phase.encode())

    def count(self, what):
        return self.number("count", what.encode())
