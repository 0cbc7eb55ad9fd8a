"""Runs and comparisons: the numbers of the command line, as Python's types and as data frames."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import terrace

SMALL = "gups,bytes=16MiB,updates=2e4"
LARGE = "gups,bytes=1GiB,updates=1e9"


@pytest.fixture(scope="module")
def pair():
    return terrace.compare(["native-4k", "native-2m"], workload=SMALL)


def test_a_run_has_the_numbers_of_a_comparison(pair):
    run = terrace.run("native-2m", SMALL)
    assert run.stats == pair["native-2m"].stats
    assert run.design == "native-2m" and run.input == "gups" and run.accesses == 40000
    assert run.seconds_simulated > 0 and run.cycles > 0 and run.wall_seconds > 0
    assert run.parameters["os.pages"] == "2m"
    assert "terrace sim --design native-2m" in run.command
    assert set(run.units) == set(run.stats)
    assert run.units["core.cycles.base"] == "cycles"


def test_equal_runs_are_equal(pair):
    again = terrace.compare(["native-4k", "native-2m"], workload=SMALL)
    assert [run.stats for run in again.runs] == [run.stats for run in pair.runs]


def test_a_histogram_is_a_dictionary(pair):
    histograms = [value for value in pair.runs[0].stats.values() if isinstance(value, dict)]
    assert histograms
    for histogram in histograms:
        assert set(histogram) == {"count", "sum", "max", "buckets"}
        assert sum(histogram["buckets"]) == histogram["count"]


def test_the_baseline_and_its_speedup(pair):
    base, huge = pair.runs
    assert pair.baseline == "native-4k"
    assert huge.speedup_over(base) == base.seconds_simulated / huge.seconds_simulated
    assert terrace.run("native-2m", SMALL, fidelity="pages").speedup_over(base) is None


def test_documents_are_those_of_the_command_line(pair, tmp_path):
    document = json.loads(pair.to_json())
    assert document["schema"] == 2 and len(document["runs"]) == 2
    assert pair.to_csv().splitlines()[0].startswith("design,machine,input,fidelity")
    page = pair.write(tmp_path / "out")
    assert page.endswith("report.html") and (tmp_path / "out/results.json").exists()
    assert "native-2m" in pair.table() and str(pair) == pair.table()


def test_frames_agree(pair):
    pandas, polars = pair.to_pandas(), pair.to_polars()
    arrow = pair.to_arrow()
    assert list(pandas.columns) == polars.columns == arrow.column_names == pair.column_names
    assert str(pandas["accesses"].dtype) == "int64" and str(pandas["seconds_simulated"].dtype) == "float64"
    for name in ("design", "accesses", "seconds_simulated", "walk.count"):
        assert list(pandas[name]) == polars[name].to_list() == arrow[name].to_pylist()
    assert list(pandas["walk.count"]) == [run.stats["walk.count"] for run in pair.runs]


def test_arrow_speaks_the_capsule_interface(pair):
    import polars
    import pyarrow

    assert pyarrow.table(pair).num_rows == 2
    assert polars.DataFrame(pair).height == 2


def test_gaps_are_gaps_in_every_frame():
    table = terrace.Table({
        "count": ("integer", [1, None]),
        "large": ("integer", [2**64 - 1, 0]),
        "share": ("real", [None, 0.5]),
        "name": ("text", ["a", None]),
        "fits": ("boolean", [None, True]),
    })
    frame = table.to_pandas()
    assert str(frame["count"].dtype) == "Int64" and frame["count"].isna().tolist() == [False, True]
    assert str(frame["fits"].dtype) == "boolean" and frame["fits"].isna().tolist() == [True, False]
    assert str(frame["large"].dtype) == "uint64" and frame["large"][0] == 2**64 - 1
    assert table.to_polars().rows() == [(1, 2**64 - 1, None, "a", None), (None, 0, 0.5, None, True)]
    assert table.to_arrow().to_pylist() == table.rows()


def test_parameters_and_machines_have_an_effect():
    base = terrace.run("native-4k", SMALL)
    small = terrace.run("native-4k", SMALL, set={"translation.l2.array.0.entries": 96})
    assert small.stats["tlb.l2.miss"] > base.stats["tlb.l2.miss"]
    assert terrace.run("native-4k", SMALL, machine="zen4-cxl").machine == "zen4-cxl"
    both = terrace.compare(["native-4k", "native-2m"], SMALL, set={"native-2m:os.pages": "4k"})
    assert both["native-2m"].stats["walk.count"] == both["native-4k"].stats["walk.count"]


def test_scale_fidelity_and_region_have_an_effect():
    base = terrace.run("native-4k", SMALL)
    assert terrace.run("native-4k", SMALL, scale=4).scale == 4
    assert terrace.run("native-4k", SMALL, fidelity="translation").left_out
    assert terrace.run("native-4k", SMALL, whole=True).accesses > base.accesses
    quick = terrace.run("native-4k", SMALL, fast_forward=True)
    assert quick.accesses == base.accesses and quick.stats != base.stats


def test_policies_with_shares_and_prices():
    result = terrace.compare(
        policies=["ambix"], fast=["50%"], price={"slow": 0.3}, workload=SMALL, machine="zen4-cxl", time_scale=1000
    )
    assert [run.design for run in result.runs] == ["first-touch", "ambix", "all-fast"]
    tiering = json.loads(result.to_json())["runs"][1]["tiering"]
    assert 0 < tiering["cost"] <= 1


def test_inputs_are_named_in_several_ways(tmp_path):
    recording = terrace.record(tmp_path / "small.trace", workload=SMALL)
    assert recording.accesses > 40000 and recording.bytes > 0
    direct = terrace.run("native-4k", SMALL).stats
    for given in ({"trace": recording}, {"input": str(tmp_path / "small.trace")}, {"input": tmp_path / "small.trace"}):
        assert terrace.run("native-4k", **given).stats == direct
    both = terrace.compare(["native-4k"], [SMALL, tmp_path / "small.trace"])
    assert [run.input for run in both.runs] == ["gups", "small"]
    workload = terrace.Workload("gups", bytes="16MiB", updates=20000)
    assert terrace.run("native-4k", workload).stats == direct


def test_programs_of_the_suite_are_inputs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = terrace.run("native-4k", terrace.Suite("milc"), fidelity="pages")
    assert run.input == "milc" and run.command.endswith("--suite milc")
    assert terrace.run("native-4k", workload="su3,iterations=2", fidelity="pages").stats == run.stats
    with pytest.raises(terrace.RequestError, match="terrace suite record perl"):
        terrace.run("native-4k", terrace.Suite("perl"))


def test_programs_of_a_mix_run_side_by_side_and_alone(tmp_path):
    mix = terrace.Mix("gups,bytes=4MiB,updates=2000", terrace.Workload("stencil", side=16))
    assert mix.word == "gups,bytes=4MiB,updates=2000,stencil,side=16"
    result = terrace.compare(["native-4k"], mix)
    stats = result["native-4k"].stats
    assert stats["mix.programs"] == 2 and stats["mix.program.gups.slowdown"] > 0.99
    swept = terrace.sweep({"designs": "native-4k"}, mix, output=tmp_path)
    assert list(swept.to_pandas()["mix.weighted_speedup"]) == [stats["mix.weighted_speedup"]]
    with pytest.raises(terrace.RequestError, match="nosuch"):
        terrace.run("native-4k", terrace.Mix("gups", "nosuch"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: terrace.run("native-2n", SMALL), 'did you mean "native-2m"?'),
        (lambda: terrace.run("native-4k", "gupps"), 'did you mean "gups"?'),
        (lambda: terrace.run("native-4k", SMALL, set={"os.pagez": 1}), "os.pages"),
        (lambda: terrace.run("native-4k", SMALL, scale=99), "scale: 99 is not in 1..=16"),
        (lambda: terrace.run("native-4k", SMALL, time_scale=0), "time_scale: 0 is not in 1..=1000000"),
        (lambda: terrace.run("native-4k", SMALL, fidelity="exact"), '"exact" is not full, translation or pages'),
        (lambda: terrace.run("native-4k", SMALL, whole=True, fast_forward=True), "exclude each other"),
        (lambda: terrace.run("native-4k"), "no input"),
        (lambda: terrace.run("native-4k", SMALL, workload=SMALL), "run takes one input, not 2"),
        (lambda: terrace.run("native-4k", "no/such.trace"), "no/such.trace"),
        (lambda: terrace.run("native-4k", terrace.Command(["no-such-program"])), "no-such-program"),
        (lambda: terrace.run("native-4k", terrace.Command(["ls"], limit=0)), "0 leaves nothing"),
        (lambda: terrace.compare(["native-4k", "native-4k"], SMALL), "a comparison needs distinct names"),
        (lambda: terrace.compare(policies=["ambix"], fast=[0], workload=SMALL), "some memory has to be fast"),
        (lambda: terrace.compare(policies=["ambix"], fast=["x"], workload=SMALL), "is not a share"),
        (lambda: terrace.run("native-4k", 7), "7 is no input"),
        (lambda: terrace.run(["native-4k", "native-2m"], SMALL), "run takes one design"),
        (lambda: terrace.run([], SMALL), "run takes one design"),
        (lambda: terrace.run(None, SMALL), "run takes one design"),
        (lambda: terrace.run("native-4k", SMALL, scale=1.5), "scale: 1.5 is not a whole number"),
        (lambda: terrace.run("native-4k", SMALL, scale=-1), "scale: -1 is not a whole number from 1 on"),
        (lambda: terrace.run("native-4k", SMALL, fidelity=None), "fidelity: None is not full, translation or pages"),
        (lambda: terrace.run("native-4k", command="true"), "'true' is no list of words"),
        (lambda: terrace.compare(["native-4k"], command="true"), "'true' is no list of words"),
        (lambda: terrace.Mix("gups", terrace.Trace("a.trace", salvage=True)), "a mix reads whole traces"),
        (lambda: terrace.Mix("gups", terrace.Trace("a,b.trace")), "commas separate the programs of a mix"),
    ],
)
def test_wrong_requests_are_refused_in_words(call, words):
    with pytest.raises(terrace.RequestError) as raised:
        call()
    assert words in str(raised.value)
    assert isinstance(raised.value, terrace.TerraceError)


def test_options_of_other_programs_keep_their_names(tmp_path):
    path = tmp_path / "a.lackey"
    path.write_text(" L 1000,8\nhello\n")
    with pytest.raises(terrace.TerraceError, match="record with valgrind --log-file=FILE"):
        terrace.run("native-4k", path)


def test_a_setting_may_be_a_text_by_itself():
    run = terrace.run("native-4k", SMALL, set="core.count=2")
    assert run.parameters["core.count"] == "2"


def test_errors_name_keyword_arguments():
    with pytest.raises(terrace.TerraceError, match="use fidelity translation or full"):
        terrace.run("thermostat", SMALL, fidelity="pages")


def test_a_damaged_trace_is_a_failed_run(tmp_path):
    path = tmp_path / "cut.trace"
    whole = terrace.record(path, workload="gups,bytes=16MiB,updates=1e6").bytes
    path.write_bytes(path.read_bytes()[: whole * 9 // 10])
    with pytest.raises(terrace.TerraceError) as raised:
        terrace.run("native-4k", terrace.Trace(path))
    assert "cut" in str(raised.value)
    run = terrace.run("native-4k", terrace.Trace(path, salvage=True), whole=True)
    assert run.accesses > 0 and any("the trace is damaged: only " in note for note in run.notes)


def test_advice_on_pages_is_a_table_of_ways(tmp_path):
    import polars

    advice = terrace.advise_pages(SMALL, intervals=False)
    names = [way["name"] for way in advice.ways]
    assert bool(advice) and len(advice) == len(names) > 1 and "name" in advice.column_names
    assert [row["name"] for row in advice.rows()] == list(advice.to_pandas()["name"]) == names
    assert advice.to_polars()["name"].to_list() == advice.to_arrow()["name"].to_pylist() == names
    advice.to_parquet(tmp_path / "ways.parquet")
    assert polars.read_parquet(tmp_path / "ways.parquet").height == len(names)


def test_what_is_true_or_false_stays_so(tmp_path):
    import polars

    hints = terrace.profile(tmp_path / "hints.toml", "gpu-xsbench,lookups=2000", machine="gpu-gtx480")
    assert str(hints.to_pandas()["has_place"].dtype) == "bool"
    assert hints.to_polars()["has_place"].dtype == polars.Boolean
    assert str(hints.to_arrow().schema.field("has_place").type) == "bool"
    hints.to_parquet(tmp_path / "hints.parquet")
    assert polars.read_parquet(tmp_path / "hints.parquet")["has_place"].to_list() == hints.to_dict()["has_place"]


def test_a_recorded_program_is_an_input():
    command = terrace.Command(["true"], limit=100_000)
    assert 0 < terrace.run("native-4k", command, whole=True).accesses <= 100_000


def test_progress_is_reported_and_ends():
    reported = []
    terrace.run("native-4k", "gups,bytes=64MiB,updates=5e5", progress=lambda notes, tasks: reported.extend(tasks))
    assert {name for _, name, _, _, _ in reported} == {"gups"}
    assert reported[-1][4] and all(0 <= (share or 0) <= 1 for _, _, _, share, _ in reported)


def test_an_exception_of_the_progress_stops_the_study():
    def show(notes, tasks):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        terrace.run("native-4k", LARGE, progress=show)


def test_control_c_stops_a_study():
    program = (
        # Whoever runs the tests in the background may have an interrupt ignored.
        "import signal, terrace\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def show(notes, tasks):\n"
        "    print('begun', flush=True)\n"
        "try:\n"
        f"    terrace.run('native-4k', {LARGE!r}, progress=show)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    rest = child.stdout.read()
    assert child.wait() == 0 and rest.endswith("interrupted\n")


def test_other_threads_run_meanwhile():
    counted, over = [0], threading.Event()

    def count():
        while not over.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    terrace.run("native-4k", "gups,bytes=64MiB,updates=2e5")
    over.set()
    thread.join()
    assert counted[0] > 10


def test_the_package_needs_no_library():
    program = "import sys, terrace; assert not {'pandas', 'polars', 'pyarrow', 'tqdm', 'ray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ})


def test_a_missing_library_is_named(pair, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(terrace.RequestError, match="pip install pandas"):
        pair.to_pandas()


def test_what_a_trace_leaves_out_is_noted(tmp_path):
    trace = tmp_path / "kernel.trace"
    trace.write_text("R ffff800000000000 8\nR 1000 8\nW 2000 8\n")
    said = "1 access is left out, since what it touches is the kernel's or not stated"
    run = terrace.run("native-4k", trace)
    assert run.accesses == 2 and said in run.notes
    assert all(said in run.notes for run in terrace.compare(["native-4k", "native-2m"], trace, intervals=False))
    trace.write_text("R ffff800000000000 8\n")
    notes = terrace.run("native-4k", trace).notes
    assert said in notes and "the input has no accesses, so there is nothing to simulate" in notes


def test_errors_of_a_study_reach_another_process(tmp_path):
    empty = tmp_path / "empty.trace"
    empty.touch()
    with pytest.raises(terrace.RunError) as caught:
        terrace.compare(["native-4k"], [str(empty), SMALL], intervals=False)
    assert len(caught.value.result.runs) == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is terrace.RunError and str(again) == str(caught.value) and again.result is None


def test_lists_without_anything_in_them_are_refused():
    for call in (
        lambda: terrace.compare(["native-4k"], []),
        lambda: terrace.compare(["native-4k"], trace=[]),
        lambda: terrace.compare(["native-4k"], workload=()),
        lambda: terrace.compare([], SMALL),
    ):
        with pytest.raises(terrace.RequestError, match="the list is empty; leave .* out for those of the built-in study"):
            call()


def test_a_folder_of_results_hides_no_workload(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gups").mkdir()
    assert terrace.run("native-4k", SMALL).input == "gups"
    with pytest.raises(terrace.RequestError, match=r"no.trace: there is no such file"):
        terrace.run("native-4k", "no.trace")


def test_runs_of_different_inputs_have_no_speedup(pair):
    other = terrace.run("native-4k", "gups,bytes=2MiB,updates=100")
    with pytest.raises(terrace.RequestError, match="these are not the same accesses"):
        other.speedup_over(pair[0])
    assert [run.design for run in pair[0:2]] == [run.design for run in pair.runs[:2]]


def test_answers_print_as_the_command_line_does():
    advice = terrace.advise_pages("gups,bytes=4MiB,updates=2000", intervals=False)
    assert advice.document["schema"] == 1 and "bloat: resident beyond 4k's" in str(advice) and repr(advice) != str(advice)
