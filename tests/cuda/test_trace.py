"""megamoe trace on simulated GPUs: the timeline and the picture that it writes, and what they say."""

import json
import os
import subprocess
from collections import Counter, defaultdict
from xml.etree import ElementTree

import pytest

COMMAND = os.environ["MMOE_COMMAND"]
SVG = "{http://www.w3.org/2000/svg}"
HIDDEN, INNER, TOP_K, TOKENS = 320, 192, 2, 60
SHAPE = f"--hidden {HIDDEN} --intermediate {INNER} --experts 4 --top-k {TOP_K} --tokens {TOKENS}".split()
TILES = {"gate_up": -(-2 * INNER // 256), "down": -(-HIDDEN // 256)}


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


@pytest.fixture(scope="module", params=[1, 2])
def traced(request, tmp_path_factory):
    return trace(tmp_path_factory.mktemp("trace"), request.param)


def spans(events, rank=None):
    return [e for e in events if e["ph"] == "X" and rank in (None, e["pid"])]


def nanoseconds(event):
    return round(1e3 * event["ts"]), round(1e3 * event["ts"]) + round(1e3 * event["dur"])


def test_results_are_those_of_an_untraced_forward(traced):
    record = traced[0]
    assert record["command"] == "trace" and record["y"] == record["untraced_y"]
    for with_trace, without in zip(record["forward"], record["untraced"]):
        for key in ("rows", "padded_rows", "bytes_pulled", "bytes_pushed"):
            assert with_trace[key] == without[key]


def test_threads_are_named_and_their_events_do_not_overlap(traced):
    _, events, _ = traced
    threads = defaultdict(list)
    for event in spans(events):
        threads[event["pid"], event["tid"]].append(nanoseconds(event))
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert names.keys() == threads.keys()
    assert len(set((pid, name) for (pid, _), name in names.items())) == len(names)
    for times in threads.values():
        assert all(before[1] <= after[0] for before, after in zip(times, times[1:]))


def test_every_task_is_told_once(traced):
    record, events, _ = traced
    for rank, report in enumerate(record["forward"]):
        blocks = report["padded_rows"] // 128
        for product, tiles in TILES.items():
            every = Counter({(block, tile): 1 for block in range(blocks) for tile in range(tiles)})
            for consumer in (0, 4):
                for kind in ("multiply", "stage"):
                    assert every == Counter((e["args"]["block"], e["args"]["tile"]) for e in spans(events, rank)
                                            if e["name"] == f"{kind} {product}" and e["tid"] % 16 == consumer)
            store = "push" if product == "down" else "store"
            for name in (f"load {product}", store):
                assert every == Counter((e["args"]["block"], e["args"]["tile"]) for e in spans(events, rank)
                                        if e["name"] == name)


def test_tokens_and_bytes_add_up(traced):
    record, events, _ = traced
    world = record["ranks"]
    for rank, (report, told) in enumerate(zip(record["forward"], record["traces"])):
        pulls = [e["args"] for e in spans(events, rank) if e["name"] == "pull"]
        assert max(Counter((p["ranks"][0], p["token"]) for p in pulls).values()) == 1
        assert all(p["bytes"] == 2 * HIDDEN and len(p["ranks"]) == 1 for p in pulls)
        from_peers = sum(p["bytes"] for p in pulls if p["ranks"] != [rank])
        assert from_peers == report["bytes_pulled"] == told["bytes_pulled"]
        assert (from_peers > 0) == (world > 1)
        pushes = [e["args"] for e in spans(events, rank) if e["name"] == "push"]
        to_peers = sum(p.get("peer_rows", 0) * p["bytes"] for p in pushes)
        ids = (world - 1) * TOKENS * TOP_K * 8
        assert to_peers + ids == report["bytes_pushed"] and to_peers == told["bytes_pushed"]
        assert sum(p["rows"] * p["bytes"] for p in pushes) == report["rows"] * 2 * HIDDEN
        sums = sorted((e["args"]["token"], e["args"]["rows"]) for e in spans(events, rank) if e["name"] == "sum")
        assert [token for first, count in sums for token in range(first, first + count)] == list(range(TOKENS))


def test_what_time_was_spent_on_adds_up(traced):
    record, events, _ = traced
    for rank, told in enumerate(record["traces"]):
        own = spans(events, rank)
        assert len(own) == told["events"] and told["lost"] == 0
        for role, kinds in told["spent_us"].items():
            for kind, spent in kinds.items():
                tellers = 1 if role != "consumer" else 8 if kind == "sum" else 2
                total = sum(e["dur"] for e in own if e["cat"] == role and e["name"] == kind)
                assert spent == pytest.approx(total / tellers / told["multiprocessors"], rel=1e-3, abs=0.01)
                assert told["waited_us"][role].get(kind, 0) <= spent
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
        step_us = (max(t["end_us"] for t in record["traces"]) - min(t["begin_us"] for t in record["traces"])) / len(rates)
        for key in ("pulled", "pushed"):
            moved = 1e3 * step_us * sum(rate[key] for rate in rates)
            assert moved == pytest.approx(told[f"bytes_{key}"], rel=0.02, abs=100)


def test_the_picture(traced):
    record, events, root = traced
    texts = [text.text for text in root.iter(SVG + "text")]
    assert root.tag == SVG + "svg"
    for rank in range(record["ranks"]):
        multiprocessors = {e["tid"] // 16 for e in spans(events, rank)}
        assert sum(text.startswith(f"rank {rank}: ") for text in texts) == 1
        assert {f"SM {number}" for number in multiprocessors} <= set(texts)
    drawn = Counter()
    for path in root.iter(SVG + "path"):
        drawn[path.get("class")] += path.get("d").count("M")
    assert min(drawn[name] for name in ("up", "down", "stage", "wait", "own")) > 0
    assert (drawn["pull"] > 0) == (drawn["push"] > 0) == (record["ranks"] > 1)
    assert not any("not kept" in text for text in texts)


def test_events_that_do_not_fit_are_counted(tmp_path):
    record, events, root = trace(tmp_path, 2, "--records=3")
    kept = Counter((e["pid"], e["tid"]) for e in spans(events))
    assert max(kept.values()) <= 3
    for rank, told in enumerate(record["traces"]):
        assert told["lost"] > 0 and told["events"] == len(spans(events, rank))
    assert sum("events were not kept" in text.text for text in root.iter(SVG + "text")) == 2
    assert record["y"] == record["untraced_y"]


def test_text_and_names_of_files(tmp_path):
    done = run(*SHAPE, f"--output={tmp_path}/a.b.svg", "--warmup=0", MEGAMOE_SIM_DEVICES="1")
    assert done.returncode == 0 and sorted(os.listdir(tmp_path)) == ["a.b.json", "a.b.svg"]
    lines = done.stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.split()[:3] == ["rank", "kernel", "multiply"])
    assert len(lines[heading + 1].split()) == len(lines[heading].split()) + 2  # bytes have a unit
    assert "ui.perfetto.dev" in lines[-1]


def test_failures_leave_no_file(tmp_path):
    done = run(*SHAPE, f"--output={tmp_path}/out", MEGAMOE_SIM_MEMORY="9000000")
    assert done.returncode == 3 and "for the trace of a forward" in done.stderr, done.stderr
    done = run(*SHAPE, "--capacity=10", f"--output={tmp_path}/out")
    assert done.returncode == 2 and "expected at most its capacity of 10" in done.stderr
    assert os.listdir(tmp_path) == []
