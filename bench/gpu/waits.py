"""What a multiprocessor's time goes to in a forward that keeps rows and in its backward, by cause: from runs of
`megamoe trace`, whose kernels are the same but for what they note."""

import json
import subprocess
import tempfile

WARM_UP = 60  # calls of each direction, after which the GPU is at its power limit
PATIENCE = 90.0  # seconds for a shape, most of which go into data made on the CPU


def trace(command, options):
    """The record of `megamoe trace`, or a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"--{name}={value}" for name, value in options.items()]
        try:
            done = subprocess.run([command, "trace", *arguments, "--json", f"--output={folder}/trace"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                                  check=False)
        except subprocess.TimeoutExpired:
            return f"it takes more than {PATIENCE:.0f} s"
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip() or f"it ended with {done.returncode}"


def calls_of(traced):
    """Microseconds by cause, of each call and rank."""
    return [{"call": call, "rank": told["rank"], "us": told[call]["account_us"]}
            for call in ("forward", "backward") for told in traced["traces"]]


def measure(command, shapes, sizes, say):
    """An entry for each hidden and intermediate size, with its calls or with why there are none. `sizes`: the other
    options of the command."""
    entries = []
    for hidden, intermediate in shapes:
        say(f"waits: {hidden}/{intermediate}")
        entry, traced = {**sizes, "hidden": hidden, "intermediate": intermediate}, "no command was given"
        if command is not None:
            traced = trace(command, {**entry, "keep": "rows", "backend": "cuda", "warmup": WARM_UP})
        if isinstance(traced, str):
            say(f"not measured: {traced}")
            entries.append({**entry, "calls": [], "not_measured": traced})
        else:
            entries.append({**entry, "calls": calls_of(traced)})
    return entries
