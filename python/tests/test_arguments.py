"""Arguments of wrong kinds are refused by their names, and damaged inputs fail their own runs alone."""

import decimal
import math
import os
import pathlib
import signal
import subprocess
import sys

import numpy
import pandas
import pytest

import terrace

SMALL = "gups,bytes=2MiB,updates=500"
TIERING = {"policies": ["tpp"], "workload": "gups,bytes=4MiB,updates=500", "machine": "zen4-cxl", "intervals": False}


@pytest.fixture
def damaged(tmp_path):
    """A trace whose end is lost, and one of which a byte within has changed."""
    whole = tmp_path / "whole.trace"
    terrace.record(whole, workload="gups,bytes=2MiB,updates=200000")
    content = whole.read_bytes()
    cut, changed = tmp_path / "cut.trace", tmp_path / "changed.trace"
    cut.write_bytes(content[:-20])
    changed.write_bytes(content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :])
    return [cut, changed]


def test_damaged_inputs_fail_their_own_runs(damaged, tmp_path):
    designs = ["native-4k", "native-2m"]
    with pytest.raises(terrace.RunError, match="2 of 6 runs succeeded: cut: .*salvage.*changed: ") as raised:
        terrace.compare(designs, [*damaged, SMALL])
    assert [run.input for run in raised.value.result.runs] == ["gups", "gups"]
    with pytest.raises(terrace.RunError, match="2 of 6 runs succeeded") as raised:
        terrace.sweep(designs, [*damaged, SMALL], output=tmp_path / "out")
    assert set(raised.value.result.to_dict()["input"]) == {"gups"}
    assert len(raised.value.result.failures) == 4


@pytest.mark.skipif(not os.environ.get("TERRACE_BINARY"), reason="TERRACE_BINARY names no terrace command")
def test_the_command_does_the_same_with_damaged_inputs(damaged, tmp_path):
    traces = [word for path in damaged for word in ("--trace", path)]
    words = [os.environ["TERRACE_BINARY"], "compare", "native-4k", "native-2m", *traces, "--workload", SMALL]
    ended = subprocess.run([*words, "-o", tmp_path / "study"], capture_output=True, text=True)
    assert ended.returncode == 1 and "2 of 6 runs succeeded" in ended.stderr, ended.stderr
    assert "cut.trace" in ended.stderr and "changed.trace" in ended.stderr
    assert (tmp_path / "study/results.csv").read_text().count("\n") == 3


def test_a_run_error_always_has_a_result(damaged):
    with pytest.raises(terrace.RunError) as raised:
        terrace.run("native-4k", damaged[0])
    assert raised.value.result is None
    with pytest.raises(terrace.RunError, match="0 of 1 runs succeeded") as raised:
        terrace.sweep(["native-4k"], [damaged[0]])
    assert len(raised.value.result) == 0


def test_true_and_false_are_no_texts():
    base = terrace.run("native-4k", SMALL)
    assert terrace.run("native-4k", SMALL, whole=numpy.bool_(True)).accesses > base.accesses
    assert terrace.run("native-4k", SMALL, whole=numpy.bool_(False)).stats == base.stats
    for name in ("whole", "fast_forward"):
        for value in ("no", "False", 0, 1, None):
            for call in (terrace.run, terrace.compare, terrace.sweep):
                with pytest.raises(terrace.RequestError, match=f"{name}: {value!r} is neither True nor False"):
                    call("native-4k", SMALL, **{name: value})
    with pytest.raises(terrace.RequestError, match="salvage: 'no' is neither"):
        terrace.run("native-4k", terrace.Trace("a.trace", salvage="no"))
    with pytest.raises(terrace.RequestError, match="intervals: 'no' is neither"):
        terrace.compare(["native-4k"], SMALL, intervals="no")


@pytest.mark.parametrize(
    "fast", [0.5, "50%", "50 %", numpy.float32(0.5), numpy.float64(0.5), decimal.Decimal("0.5"), numpy.array([0.5]), [0.5]]
)
def test_shares_are_numbers_of_any_kind(fast):
    result = terrace.compare(fast=fast, **TIERING)
    assert [run.design for run in result.runs] == ["first-touch", "tpp", "all-fast"]


def test_parameters_come_from_mappings_of_any_kind():
    for given in (pandas.Series({"os.pages": "2m"}), [("os.pages", "2m")], ["os.pages=2m"], "os.pages=2m"):
        assert terrace.run("native-4k", SMALL, set=given).parameters["os.pages"] == "2m"
    assert terrace.Workload("gups", timed=numpy.bool_(True)).spec == "gups,timed=true"
    assert terrace.run("native-4k", workload=terrace.Workload("gups", bytes="2MiB", updates=500)).accesses == 1000


def run(**given):
    return lambda: terrace.run("native-4k", SMALL, **given)


def tiering(**given):
    return lambda: terrace.compare(**TIERING, **given)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (run(machine=3), "machine: 3 is neither a text nor a path"),
        (run(hints=3), "hints: 3 is neither"),
        (run(set=5), "set: 5 is no mapping of parameters"),
        (run(set=pathlib.Path("x")), "set: "),
        (run(set=[("os.pages",)]), "set: ('os.pages',) is no parameter with its value"),
        (run(scale=True), "scale: True is not a whole number"),
        (lambda: terrace.run("native-4k", trace=3), "trace: 3 is neither"),
        (lambda: terrace.run("native-4k", workload=3), "workload: 3 is no name"),
        (lambda: terrace.run("native-4k", numpy.arange(0, 4096 * 100, 64)), "a ndarray is no input; "),
        (lambda: terrace.run("native-4k", [0, 64]), "command: 0 is no word of a command; Write addresses to a file"),
        (lambda: terrace.run("native-4k", []), "command: it is empty"),
        (lambda: terrace.run("native-4k", command=[]), "command: it is empty"),
        (lambda: terrace.compare([4], SMALL), "designs: 4 is neither"),
        (lambda: terrace.compare(["native-4k"], {"name": "gups"}), 'give terrace.Workload("gups"'),
        (lambda: terrace.Workload("gups", bytes="2MiB,updates=7"), "bytes: '2MiB,updates=7' has a comma"),
        (tiering(fast=50), 'fast: "50" is not a share'),
        (tiering(fast=True), 'fast: "True" is not a share'),
        (tiering(fast=math.nan), 'fast: "nan" is not a share'),
        (tiering(fast=[None]), 'fast: "None" is not a share'),
        (tiering(fast=[0.5, "50%"]), "fast: 0.5 is there twice"),
        (tiering(price=[("cxl", 0.3)]), "price: [('cxl', 0.3)] is no mapping"),
        (tiering(price={"cxl": "a"}), '"cxl=a" is not TIER=PRICE'),
        (tiering(price={"cxl": None}), '"cxl=None" is not TIER=PRICE'),
        (lambda: terrace.sweep(["native-4k"], [{"bytes": "2MiB"}]), "names no workload"),
        (lambda: terrace.sweep({"designs": ["native-4k"], "os.pages": None}, SMALL), "os.pages: None is neither a value nor"),
        (lambda: terrace.sweep({"designs": ["native-4k"], "core.base_cpi": [1, math.nan]}, SMALL), "core.base_cpi: nan is no value"),
        (lambda: terrace.sweep(["native-4k"], SMALL, retries="x"), "retries: 'x' is not a whole number from 0 on"),
        (lambda: terrace.sweep(["native-4k"], SMALL, output=3), "output: 3 is neither"),
        (lambda: terrace.advise(SMALL, seeds=2.5), "seeds: 2.5 is not a whole number"),
        (lambda: terrace.advise(SMALL, seeds=101), "seeds: 101 is not in 1..=100"),
        (lambda: terrace.advise_pages(SMALL, bloat="x"), 'bloat: "x" is not a share, such as 10% or 0.1'),
        (lambda: terrace.tune("tpp", SMALL, runs="4"), "runs: '4' is not a whole number"),
        (lambda: terrace.tune("tpp", SMALL, ranges={"period": ("1 ms",)}), "ranges: period: ('1 ms',) is no pair"),
        (lambda: terrace.tune("tpp", SMALL, ranges=[1]), "ranges: [1] is no mapping"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, words):
    with pytest.raises(terrace.RequestError) as raised:
        call()
    assert words in str(raised.value)


def test_a_share_of_bloat_is_written_as_its_message_says():
    asked = {"policies": ["thp"], "intervals": False}
    assert terrace.advise_pages(SMALL, bloat="10%", **asked).document == terrace.advise_pages(SMALL, bloat=0.1, **asked).document


def test_runs_are_found_by_number():
    result = terrace.compare(["native-4k", "native-2m"], SMALL, intervals=False)
    assert result[0].design == "native-4k" and result[-1].design == "native-2m"
    with pytest.raises(KeyError):
        result["native-1g"]


def test_notebooks_show_plain_tables():
    table = terrace.Table({"<b>": ("text", ["<script>&", None]), "n": ("integer", [1, 2])})
    assert table._repr_html_() == (
        "<table><thead><tr><th>&lt;b&gt;</th><th>n</th></tr></thead>"
        "<tbody><tr><td>&lt;script&gt;&amp;</td><td>1</td></tr><tr><td></td><td>2</td></tr></tbody></table>"
    )
    long = terrace.Table({f"c{at}": ("integer", list(range(50))) for at in range(20)})._repr_html_()
    assert long.count("<tr>") == 41 and "and 10 more rows and 4 more columns: to_pandas() has all" in long
    result = terrace.compare(["native-4k", "native-2m"], SMALL, intervals=False)
    assert "<td>native-2m</td>" in result._repr_html_()
    shown = result.runs[0]._repr_html_()
    walks = result.runs[0].stats["walk.count"]
    assert f"<tr><td>walk.count</td><td>{walks}</td><td>count</td></tr>" in shown
    assert result.units["walk.count"] == "count"


def test_an_interrupted_sweep_leaves_its_table(tmp_path):
    program = (
        # Whoever runs the tests in the background may have an interrupt ignored.
        "import os, signal, sys, terrace\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def show(notes, tasks):\n"
        f"    if os.path.isdir({str(tmp_path / 'out' / 'runs')!r}) and os.listdir({str(tmp_path / 'out' / 'runs')!r}):\n"
        "        print('begun', flush=True)\n"
        "try:\n"
        f"    terrace.sweep(['native-4k'], [{SMALL!r}, 'gups,bytes=1GiB,updates=1e9'], output={str(tmp_path / 'out')!r}, progress=show)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    assert child.stdout.read().endswith("interrupted\n") and child.wait() == 0
    assert pandas.read_csv(tmp_path / "out/results.csv")["accesses"].tolist() == [1000]
