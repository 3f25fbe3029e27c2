"""bench --draw: the bars of records of benchmarks."""

import json
import os
from xml.etree import ElementTree

import pytest

from command import INPUT, SOURCE, TINY, good, refused

SVG = "{http://www.w3.org/2000/svg}"
RESULTS = SOURCE / "bench/results"
CALLS = ["forward", "backward"]


def drawn(path):
    """The bars' lengths, a list for each series, and all texts."""
    root = ElementTree.parse(path).getroot()
    texts = [text.text for text in root.iter(SVG + "text")]
    legend = [box for box in root.iter(SVG + "rect") if box.get("width") == box.get("height") == "12.0"]
    bars = {}
    for box in root.iter(SVG + "rect"):
        if box.get("class").startswith("series") and box not in legend:
            bars.setdefault(box.get("class"), []).append(float(box.get("width")))
    assert len(legend) == len(bars)
    return [bars[name] for name in sorted(bars)], texts


def bars_of(path, tmp_path):
    assert good("bench", f"--draw={path}", f"--output={tmp_path}/picture.svg") == ""
    return drawn(tmp_path / "picture.svg")


def expect_lengths(bars, values):
    """Bars as long as the values, in one unit."""
    unit = max(map(max, bars)) / max(map(max, values))
    assert [len(series) for series in bars] == [len(series) for series in values]
    for lengths, numbers in zip(bars, values):
        assert lengths == pytest.approx([unit * number for number in numbers], abs=0.11)


def test_a_record_of_this_command(tmp_path):
    path = tmp_path / "record.json"
    good("bench", *TINY, "--iterations=1", f"--output={path}")
    assert good("bench", f"--draw={path}") == ""
    assert sorted(os.listdir(tmp_path)) == ["record.json", "record.svg"]
    bars, texts = drawn(tmp_path / "record.svg")
    record = json.loads(path.read_text())
    layer = [record[call]["seconds"] for call in CALLS]
    products = [record["gemm"][call]["seconds"] for call in CALLS]
    expect_lengths(bars, [[*layer, sum(layer)], [*products, sum(products)]])
    assert {"the layer", "forward", "backward", "both"} <= set(texts)
    assert f"{1e3 * layer[0]:.3g} ms" in texts


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*ranks*.json")), ids=lambda path: path.stem)
def test_every_result_on_a_cpu(path, tmp_path):
    bars, texts = bars_of(path, tmp_path)
    assert [len(series) for series in bars] == [3, 3]
    assert json.loads(path.read_text())["preset"] in texts[0]


def test_the_layer_on_a_gpu(tmp_path):
    bars, texts = bars_of(RESULTS / "gpu-layer.json", tmp_path)
    cases = json.loads((RESULTS / "gpu-layer.json").read_text())["cases"]
    expect_lengths(bars, [[case[kind][call] for case in cases for call in CALLS]
                          for kind in ("rows", "unfused", "dense")])
    assert any("NVIDIA H200" in text for text in texts)
    assert any(text.startswith("2048 / 768, 128 experts, top-8, 16384 tokens a rank") for text in texts)


def test_several_gpus(tmp_path):
    bars, texts = bars_of(RESULTS / "gpu-parallel.json", tmp_path)
    cases = json.loads((RESULTS / "gpu-parallel.json").read_text())["cases"]
    measured = [(call, ours) for case in cases
                for call, ours in ((case, "ours, fixed"), (case.get("backward", {}), "ours, rows kept"))
                if "variants" in call]
    assert len(measured) > len(cases)  # some cases have both directions
    expect_lengths(bars, [[call["variants"][kind or ours]["milliseconds"] for call, ours in measured]
                          for kind in (None, "unfused", "dense")])
    assert texts[0] == "A mixture-of-experts layer on 2 GPUs"
    assert any(text.endswith("one GPU: backward") for text in texts)


def test_what_is_no_record(tmp_path):
    path, output = tmp_path / "a.json", f"--output={tmp_path}/picture.svg"
    sentences = {
        "": f"--draw is '{path}', which can't be read: ",
        "[1]": f"--draw is '{path}', expected a record of 'megamoe bench'",
        '{"cases": []}': f"--draw is '{path}', expected a record of 'megamoe bench'",
        '{"cases": [{"products": []}]}': f"--draw is '{path}', expected a record of 'megamoe bench'",
        '{"gemm": {}, "forward": {"seconds": 1}}': f"--draw is '{path}', which has no time for 'its matrix products",
        '{"cases": [{"rows": {"forward": 1}}]}': f"--draw is '{path}', which has no time for 'unfused: PyTorch' of",
    }
    for text, sentence in sentences.items():
        path.write_text(text)
        assert refused("bench", f"--draw={path}", output, code=INPUT).startswith(sentence)
    assert "can't be read" in refused("bench", f"--draw={tmp_path}/none.json", output)
    assert refused("bench", f"--draw={path}", f"--output={tmp_path}/no/such.svg").endswith(
        "expected a file in a folder that can be written")
    assert os.listdir(tmp_path) == ["a.json"]
