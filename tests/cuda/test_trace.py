"""megamoe trace on simulated GPUs: the timeline and the picture that it writes, and what they say."""

import json
import os
import subprocess
from collections import Counter, defaultdict
from xml.etree import ElementTree

import pytest

COMMAND = os.environ["MMOE_COMMAND"]
SVG = "{http://www.w3.org/2000/svg}"
HIDDEN, INNER, EXPERTS, TOP_K, TOKENS = 320, 192, 4, 2, 60
SHAPE = f"--hidden {HIDDEN} --intermediate {INNER} --experts {EXPERTS} --top-k {TOP_K} --tokens {TOKENS}".split()
CALLS = ("forward", "backward")
TILES = {"gate_up": -(-2 * INNER // 256), "down": -(-HIDDEN // 256), "dgate_up": -(-INNER // 256), "dx": -(-HIDDEN // 256)}
GRADIENT_TILES = -(-HIDDEN // 256) * 2 * -(-INNER // 256) + 2 * -(-INNER // 128) * -(-HIDDEN // 256)
WARPS = {"consumer": 2, "summer": 3, "finisher": 12}  # of a multiprocessor that tell


def run(*arguments, **environment):
    return subprocess.run([COMMAND, "trace", *map(str, arguments)], env=os.environ | environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False)


def trace(folder, ranks, *arguments):
    """The record printed, the timeline's events and the picture's root, of a run on so many GPUs."""
    done = run(*SHAPE, f"--ranks={ranks}", f"--output={folder}/out", "--json", *arguments, MEGAMOE_SIM_DEVICES=str(ranks))
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(folder)) == ["out.json", "out.svg"]
    timeline = json.loads((folder / "out.json").read_text())
    assert timeline["otherData"] == json.loads(done.stdout)
    return timeline["otherData"], timeline["traceEvents"], ElementTree.parse(folder / "out.svg").getroot()


@pytest.fixture(scope="module", params=[(1, "rows"), (2, "plan")], ids=["one rank, rows kept", "two ranks, plan kept"])
def traced(request, tmp_path_factory):
    ranks, keep = request.param
    return trace(tmp_path_factory.mktemp("trace"), ranks, f"--keep={keep}", "--warmup=0")


def spans(events, rank=None, call=None):
    """What warps tell; of one call: what lies inside of it on its rank."""
    every = [e for e in events if e["ph"] == "X"]
    bounds = {(e["pid"], e["name"]): nanoseconds(e) for e in every if e["cat"] == "call"}
    return [e for e in every if e["cat"] != "call" and rank in (None, e["pid"]) and
            (call is None or bounds[e["pid"], call][0] <= nanoseconds(e)[0] <= nanoseconds(e)[1] <= bounds[e["pid"], call][1] + 2)]


def each_call(record):
    """Every rank, call, the call's report and what its events add up to."""
    for rank, told in enumerate(record["traces"]):
        for call in CALLS:
            if call in told:
                yield rank, call, record[call][rank], told[call]


def nanoseconds(event):
    return round(1e3 * event["ts"]), round(1e3 * event["ts"]) + round(1e3 * event["dur"])


def test_results_are_those_of_untraced_calls(traced):
    record = traced[0]
    assert record["command"] == "trace" and record["checksums"] == record["untraced"]["checksums"]
    assert list(record["checksums"]) == ["y", "dx", "dw", "dW1", "dW3", "dW2"]
    for rank, call, report, _ in each_call(record):
        for key in ("rows", "padded_rows", "bytes_pulled", "bytes_pushed"):
            assert report[key] == record["untraced"][call][rank][key]


def test_calls_lie_one_after_the_other(traced):
    record, events, _ = traced
    for rank, told in enumerate(record["traces"]):
        (forward, backward) = [nanoseconds(e) for e in events if e.get("cat") == "call" and e["pid"] == rank]
        assert forward[1] < backward[0]
        assert len(spans(events, rank)) == sum(len(spans(events, rank, call)) for call in CALLS)
        assert told["backward"]["begin_us"] == pytest.approx(1e-3 * backward[0], abs=0.002)
    assert record["cut_us"] >= 0


def test_threads_are_named_and_their_events_do_not_overlap(traced):
    _, events, _ = traced
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(nanoseconds(event))
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert names.keys() == threads.keys()
    assert len(set((pid, name) for (pid, _), name in names.items())) == len(names)
    for times in threads.values():
        assert all(before[1] <= after[0] for before, after in zip(times, times[1:]))


def products_of(record, call):
    """Of each product over rows: who tells, beside the loader."""
    if call == "forward":
        return {"gate_up": ("stage gate_up", "store"), "down": ("stage down", "push")}
    again = {"gate_up": ("stage gate_up", "store")} if record["keep"] == "plan" else {}
    return again | {"dgate_up": ("differentiate", "store dgate_up"), "dx": ("stage dx", "push")}


def places(events, name, consumer=None, first="block"):
    return Counter((e["args"][first], e["args"]["tile"]) for e in events
                   if e["name"] == name and consumer in (None, e["tid"] % 32))


def test_every_task_is_told_once(traced):
    record, events, _ = traced
    for rank, call, report, _ in each_call(record):
        own = spans(events, rank, call)
        for product, (stage, store) in products_of(record, call).items():
            every = Counter((block, tile) for block in range(report["padded_rows"] // 128) for tile in range(TILES[product]))
            for consumer in (0, 4):
                for name in (f"multiply {product}", stage):
                    assert places(own, name, consumer) == every
            for name in (f"load {product}", store):
                assert places(own, name) == every
        told = {e["name"].split()[1] for e in own if e["name"].startswith("multiply")}
        assert told == products_of(record, call).keys() | ({"wgrad"} if call == "backward" else set())


def test_every_tile_of_the_gradients_of_weights_is_told_once(traced):
    record, events, _ = traced
    every = Counter((expert, tile) for expert in range(EXPERTS // record["ranks"]) for tile in range(GRADIENT_TILES))
    for rank in range(record["ranks"]):
        for consumer in (0, 4):
            assert places(spans(events, rank), "stage wgrad", consumer, "expert") == every
        assert places(spans(events, rank), "load wgrad", first="expert") == every


def test_tokens_and_bytes_add_up(traced):
    record, events, _ = traced
    for rank, call, report, told in each_call(record):
        own = spans(events, rank, call)
        slots = 2 if call == "backward" and record["keep"] == "plan" else 1
        pulls = [e["args"] for e in own if e["name"] == "pull"]
        assert max(Counter((p["ranks"][0], p["token"], p["piece"]) for p in pulls).values()) == 1
        assert {p["piece"] for p in pulls} == set(range(slots))
        assert all(p["bytes"] == 2 * HIDDEN and len(p["ranks"]) == 1 for p in pulls)
        from_peers = sum(p["bytes"] for p in pulls if p["ranks"] != [rank])
        assert from_peers == report["bytes_pulled"] == told["bytes_pulled"]
        assert (from_peers > 0) == (record["ranks"] > 1)
        pushes = {name: [e["args"] for e in own if e["name"] == name] for name in ("push", "push dw")}
        to_peers = sum(p.get("peer_rows", 0) * p["bytes"] for several in pushes.values() for p in several)
        ids = (record["ranks"] - 1) * TOKENS * TOP_K * 8 if call == "forward" else 0
        assert to_peers + ids == report["bytes_pushed"] and to_peers == told["bytes_pushed"]
        assert sum(p["rows"] * p["bytes"] for p in pushes["push"]) == report["rows"] * 2 * HIDDEN
        assert sum(p["rows"] for p in pushes["push dw"]) == (report["rows"] if call == "backward" else 0)
        sums = sorted((e["args"]["token"], e["args"]["rows"]) for e in own if e["name"] == "sum")
        assert [token for first, count in sums for token in range(first, first + count)] == list(range(TOKENS))


def test_what_time_was_spent_on_adds_up(traced):
    record, events, _ = traced
    for rank, call, _, told in each_call(record):
        own = spans(events, rank, call)
        assert len(own) == told["events"] and told["lost"] == 0
        for role, kinds in told["spent_us"].items():
            for kind, spent in kinds.items():
                tellers = 8 if (role, kind) == ("consumer", "sum") else WARPS.get(role, 1)
                total = sum(e["dur"] for e in own if e["cat"] == role and e["name"] == kind)
                assert spent == pytest.approx(total / tellers / told["multiprocessors"], rel=1e-3, abs=0.01)
                assert told["waited_us"][role].get(kind, 0) <= spent
        assert sum(len(kinds) for kinds in told["spent_us"].values()) == len({(e["cat"], e["name"]) for e in own if e["dur"]})
        account, waits = told["account_us"], told["waited_us"]["consumer"]
        assert account["tasks"] == told["spent_us"]["consumer"]["await task"]
        assert account["stages"] == pytest.approx(sum(us for kind, us in waits.items() if kind.startswith("multiply")))
        at_once = ("multiply", "stage", "sum", "stages", "room", "tasks", "results", "nothing")
        assert sum(account[name] for name in at_once) == pytest.approx(account["kernels"], rel=1e-6)
        span = max(nanoseconds(e)[1] for e in own) - min(nanoseconds(e)[0] for e in own)
        assert told["end_us"] - told["begin_us"] == pytest.approx(1e-3 * span, abs=0.002)


def test_simulated_gpus_have_one_clock(traced):
    assert all(told["shift_us"] == 0 for told in traced[0]["traces"])


def test_rates_over_time(traced):
    record, events, _ = traced
    for rank, told in enumerate(record["traces"]):
        shares = [e["args"]["share"] for e in events if e["pid"] == rank and e["name"] == "multiplying"]
        rates = [e["args"] for e in events if e["pid"] == rank and e["name"] == "link, GB/s"]
        assert len(shares) == len(rates) > 100 and 0 < max(shares) <= 1.001
        step_us = max(t["backward"]["end_us"] for t in record["traces"]) / len(rates)
        for key in ("pulled", "pushed"):
            moved = 1e3 * step_us * sum(rate[key] for rate in rates)
            assert moved == pytest.approx(sum(told[call][f"bytes_{key}"] for call in CALLS), rel=0.02, abs=100)


def test_the_picture(traced):
    record, events, root = traced
    texts = [text.text for text in root.iter(SVG + "text")]
    assert root.tag == SVG + "svg"
    for rank in range(record["ranks"]):
        multiprocessors = {e["tid"] // 32 for e in spans(events, rank)}
        assert sum(text.startswith(f"rank {rank}: ") for text in texts) == 1
        assert {f"SM {number}" for number in multiprocessors} <= set(texts)
    drawn = Counter()
    for path in root.iter(SVG + "path"):
        drawn[path.get("class")] += path.get("d").count("M")
    assert min(drawn[name] for name in ("up", "down", "inner", "dx", "weights", "stage", "wait", "sum", "own")) > 0
    assert {"forward", "backward"} <= set(texts)
    assert (drawn["pull"] > 0) == (drawn["push"] > 0) == (record["ranks"] > 1)
    assert not any("not kept" in text for text in texts)


@pytest.mark.parametrize("only", CALLS)
def test_one_call_alone(tmp_path, only):
    record, events, root = trace(tmp_path, 1, f"--only={only}", "--warmup=0", "--rows=2")
    assert all(set(told) & set(CALLS) == {only} for told in record["traces"])
    assert set(record) & set(CALLS) == {only} == set(record["untraced"]) - {"checksums"}
    assert ("y" in record["checksums"]) == (only == "forward") != ("dx" in record["checksums"])
    assert record["checksums"] == record["untraced"]["checksums"]
    assert {e["name"] for e in events if e.get("cat") == "call"} == {only}
    assert any(e["name"] == ("multiply down" if only == "forward" else "multiply dx") for e in spans(events))
    texts = [text.text for text in root.iter(SVG + "text")]
    assert not (set(CALLS) - {only}) & set(texts) and sum(text.startswith("SM ") for text in texts) == 2


def test_events_that_do_not_fit_are_counted(tmp_path):
    record, events, root = trace(tmp_path, 1, "--records=3", "--warmup=0")
    kept = Counter((e["pid"], e["tid"]) for e in spans(events, call="forward"))
    assert max(kept.values()) <= 3
    for rank, call, _, told in each_call(record):
        assert told["lost"] > 0 and told["events"] == len(spans(events, rank, call))
    assert sum("events were not kept" in text.text for text in root.iter(SVG + "text")) == 1
    assert record["checksums"] == record["untraced"]["checksums"]


def test_text_and_names_of_files(tmp_path):
    done = run("--hidden=64", "--intermediate=64", "--experts=2", "--top-k=1", f"--output={tmp_path}/a.b.svg", MEGAMOE_SIM_DEVICES="1")
    assert done.returncode == 0 and sorted(os.listdir(tmp_path)) == ["a.b.json", "a.b.svg"]
    lines = done.stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.split()[:4] == ["rank", "call", "kernels", "multiply"])
    for line, call in zip(lines[heading + 1:], CALLS):
        assert line.split()[:2] == ["0", call]
        assert len(line.split()) == len(lines[heading].split()) + 2  # bytes have a unit
    assert "ui.perfetto.dev" in lines[-1]


def test_failures_leave_no_file(tmp_path):
    done = run(*SHAPE, f"--output={tmp_path}/out", "--warmup=0", MEGAMOE_SIM_MEMORY="9000000")
    assert done.returncode == 3 and "for the trace of a forward" in done.stderr, done.stderr
    done = run(*SHAPE, "--capacity=10", f"--output={tmp_path}/out")
    assert done.returncode == 2 and "expected at most its capacity of 10" in done.stderr
    assert os.listdir(tmp_path) == []
