"""NumPy files in and out: what NumPy writes is read, what the command writes NumPy reads, and a bad file is refused."""

import struct

import numpy as np
import pytest

from arrays import from_bf16, to_bf16
from command import TINY, good, record, refused

TOKENS, K, E, H, I = 6, 2, 8, 64, 32
SIZES = ["--hidden=64", "--intermediate=32", "--experts=8", "--top-k=2"]
random = np.random.default_rng(1)
IDS = random.integers(-1, E, (TOKENS, K))
WEIGHTS = random.random((TOKENS, K)).astype("f4")
X = random.standard_normal((TOKENS, H)).astype("f4")
GATE = random.standard_normal((E, I, H)).astype("f4")
DOWN = random.standard_normal((E, H, I)).astype("f4")


def write(folder, name, array):
    np.save(folder / name, array)
    return folder / f"{name}.npy"


def saved(folder):
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("ids_type,float_type", [("<i4", "<f4"), ("<i8", "<f8")])
def test_round_trip(tmp_path, ranks, ids_type, float_type):
    inputs = {"ids": IDS.astype(ids_type), "weights": WEIGHTS.astype(float_type), "x": X.astype(float_type),
              "dy": (2 * X).astype(float_type), "gate": GATE.astype(float_type), "up": -GATE.astype(float_type),
              "down": DOWN.astype(float_type)}
    files = [f"--{name}={write(tmp_path, name, array)}" for name, array in inputs.items()]
    good("run", *SIZES, *files, f"--ranks={ranks}", f"--save={tmp_path / 'out'}")
    out = saved(tmp_path / "out")
    assert sorted(out) == sorted("x dy ids w W1 W2 W3 y dx dw dW1 dW2 dW3".split())
    for name, array in (("x", X), ("dy", 2 * X), ("W1", GATE), ("W3", -GATE), ("W2", DOWN)):
        assert out[name].dtype == np.dtype("<u2")
        np.testing.assert_array_equal(out[name], to_bf16(array))
    np.testing.assert_array_equal(out["ids"], IDS)
    np.testing.assert_array_equal(out["w"], WEIGHTS)
    assert out["y"].shape == (TOKENS, H) and out["dw"].shape == (TOKENS, K) and out["dw"].dtype == np.dtype("<f4")
    assert np.all(out["dw"][IDS < 0] == 0)
    assert np.all(np.isfinite(from_bf16(out["y"])))
    assert not list((tmp_path / "out").glob("*.part"))


def test_bf16_bits_are_taken_as_they_are(tmp_path):
    bits = to_bf16(X)
    path = write(tmp_path, "x", bits)
    good("run", *SIZES, f"--x={path}", f"--save={tmp_path / 'out'}")
    np.testing.assert_array_equal(saved(tmp_path / "out")["x"], bits)


def test_what_was_saved_runs_again_to_the_same_checksums(tmp_path):
    first = record("run", *SIZES, "--tokens=5,1", "--ranks=2", f"--save={tmp_path}")
    options = {"x": "x", "dy": "dy", "ids": "ids", "weights": "w", "gate": "W1", "up": "W3", "down": "W2"}
    files = [f"--{option}={tmp_path}/{name}.npy" for option, name in options.items()]
    again = record("run", *SIZES, *files, "--ranks=4", "--seed=9")
    assert again["tokens"] == [2, 2, 1, 1]
    assert again["routing"] == "file"
    assert again["checksums"] == first["checksums"]


def test_tokens_of_files_are_split(tmp_path):
    ids = write(tmp_path, "ids", IDS)
    assert record("info", *SIZES, f"--ids={ids}", "--ranks=4")["tokens"] == [2, 2, 1, 1]
    assert record("info", *SIZES, f"--ids={ids}", "--ranks=4", "--tokens=0,6,0,0")["tokens"] == [0, 6, 0, 0]
    assert refused("info", *SIZES, f"--ids={ids}", "--ranks=4", "--tokens=2") == (
        f"--ids is '{ids}', which has shape [6, 2], expected [8, 2]")


def test_info_counts_a_file(tmp_path):
    ids = write(tmp_path, "ids", IDS)
    plan = record("info", *SIZES, f"--ids={ids}", "--ranks=2", "--routing=file")["plan"]
    assert plan["expert_slots"] == [int(np.sum(IDS == e)) for e in range(E)]
    assert [rank["rows"] for rank in plan["ranks"]] == [int(np.sum((IDS >= 0) & (IDS // 4 == r))) for r in range(2)]
    assert [rank["slots"] for rank in plan["ranks"]] == [int(np.sum(part >= 0)) for part in (IDS[:3], IDS[3:])]


@pytest.mark.parametrize("command", ["run", "check", "bench", "info"])
@pytest.mark.parametrize("bad", [-2, -2**31, E, 2**31 - 1, 2**32 + 1])
@pytest.mark.parametrize("place", [(0, 0), (TOKENS - 1, K - 1)])
def test_b09_id_out_of_range_names_token_and_slot(tmp_path, command, bad, place):
    for kind in ("<i4", "<i8"):
        if kind == "<i4" and bad > 2**31:
            continue
        ids = IDS.astype(kind)
        ids[place] = bad
        path = write(tmp_path, "ids", ids)
        assert refused(command, *SIZES, f"--ids={path}", "--ranks=2") == (
            f"--ids is '{path}', where token {place[0]}, slot {place[1]} has id {bad}, expected -1 to {E - 1}")


@pytest.mark.parametrize("option,array,expected", [
    ("ids", IDS.astype("<f4"), "which holds <f4, expected <i4 or <i8"),
    ("ids", IDS.astype("<u2"), "which holds <u2, expected <i4 or <i8"),
    ("ids", IDS[:, :1], "which has shape [6, 1], expected [6, 2]"),
    ("ids", IDS.ravel(), "which has shape [12], expected "),
    ("weights", WEIGHTS.astype("<i4"), "which holds <i4, expected <f4 or <f8"),
    ("x", X.astype("<i8"), "which holds <i8, expected <u2 (the bits of bf16), <f4 or <f8"),
    ("x", X[:, :63], "which has shape [6, 63], expected [6, 64]"),
    ("dy", X[None], "which has shape [1, 6, 64], expected "),
    ("gate", DOWN, "which has shape [8, 64, 32], expected [8, 32, 64]"),
    ("up", GATE[:4], "which has shape [4, 32, 64], expected [8, 32, 64]"),
    ("down", GATE, "which has shape [8, 32, 64], expected [8, 64, 32]"),
])
def test_wrong_type_or_shape(tmp_path, option, array, expected):
    path = write(tmp_path, option, array)
    sentence = refused("run", *SIZES, f"--{option}={path}")
    assert sentence.startswith(f"--{option} is '{path}', {expected}")


def test_weights_that_are_not_finite(tmp_path):
    weights = WEIGHTS.copy()
    weights[3, 1] = np.inf
    path = write(tmp_path, "weights", weights)
    assert "weights" in refused("run", *SIZES, f"--weights={path}", "--ranks=2")


HEADER = "{'descr': '<i8', 'fortran_order': False, 'shape': (6, 2), }"


def npy(header=HEADER, data=IDS.astype("<i8").tobytes(), version=1, magic=b"\x93NUMPY", length=None):
    text = header.encode("latin1")
    size = len(text) if length is None else length
    return magic + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", size) + text + data


def test_headers_that_are_right(tmp_path):
    path = tmp_path / "ids.npy"
    for content in (npy(), npy(version=2), npy(HEADER.replace("'", '"') + " " * 70 + "\n"),
                    npy("{ 'shape' :( 6,2 ),'fortran_order':False , 'descr':'<i8'}")):
        path.write_bytes(content)
        assert record("info", *SIZES, f"--ids={path}")["tokens"] == [6]


@pytest.mark.parametrize("content,says", [
    (b"", "it is empty"),
    (b"\x93NUM", "it is no .npy file"),
    (npy(magic=b"\x93NUMPX"), "it is no .npy file"),
    (npy(version=3), "its format version is 3, expected 1 or 2"),
    (npy()[:11], "it ends inside its header"),
    (npy(length=65535), "it ends inside its header"),
    (npy(version=2, length=2**32 - 1), "it ends inside its header"),
    (npy(data=b""), "it holds 0 bytes of data, expected 96 for <i8 [6, 2]"),
    (npy()[:-1], "it holds 95 bytes of data, expected 96 for <i8 [6, 2]"),
    (npy() + b"\0", "it holds 97 bytes of data, expected 96 for <i8 [6, 2]"),
    (npy(HEADER.replace("False", "True")), "fortran_order is True, expected C order"),
    (npy(HEADER.replace("False", "0")), "fortran_order is neither True nor False"),
    (npy(HEADER.replace("<i8", ">i8")), "the element type is '>i8', expected <f4, <f8, <i4, <i8 or <u2"),
    (npy(HEADER.replace("<i8", "O")), "the element type is 'O'"),
    (npy(HEADER.replace("(6, 2)", "(-6, 2)")), "the shape holds something that is no length"),
    (npy(HEADER.replace("(6, 2)", "(6 2)")), "the shape is no tuple"),
    (npy(HEADER.replace("(6, 2)", "[6, 2]")), "the shape is no tuple"),
    (npy(HEADER.replace("(6, 2)", "(6, 2")), "the shape "),
    (npy(HEADER.replace("(6, 2)", "(1, 1, 1, 6, 2)")), "the shape has more than 4 dimensions"),
    (npy(HEADER.replace("(6, 2)", "(9223372036854775808,)")), "the shape holds a length of 2^63 or more"),
    (npy(HEADER.replace("(6, 2)", "(4294967296, 4294967296)")), "the shape [4294967296, 4294967296] is too large"),
    (npy(HEADER.replace("(6, 2)", "(0, 9223372036854775807, 9)")), "it holds 96 bytes of data, expected 0"),
    (npy(HEADER.replace("'shape': (6, 2), ", "")), "the header is not just descr, fortran_order and shape"),
    (npy(HEADER.replace("}", "'more': (1,)}")), "the header has an entry 'more' that is not known"),
    (npy(HEADER.replace("}", "'descr': '<i8'}")), "the header has an entry 'descr' twice"),
    (npy(HEADER + "x"), "the header is not just descr, fortran_order and shape"),
    (npy("(1, 2)"), "the header is no dictionary of descr, fortran_order and shape"),
    (npy("{'descr"), "the header ends inside a string"),
    (npy("{'descr'}"), "the header's entry 'descr' has no value"),
], ids=lambda value: value if isinstance(value, str) else "file")
def test_malformed_file(tmp_path, content, says):
    path = tmp_path / "ids.npy"
    path.write_bytes(content)
    sentence = refused("run", *SIZES, f"--ids={path}")
    assert sentence.startswith(f"--ids is '{path}', which can't be used: {says}")


def test_no_file(tmp_path):
    for option in ("ids", "weights", "x", "dy", "gate", "up", "down"):
        assert refused("run", *TINY, f"--{option}={tmp_path}/none.npy") == (
            f"--{option} is '{tmp_path}/none.npy', which can't be used: No such file or directory")
    assert "it is no regular file" in refused("run", *TINY, f"--ids={tmp_path}")
