"""Sweeps: what is asked for, going on, files, and the command list."""

import gc
import os
import subprocess

import pytest

import terrace
from terrace import _terrace

SMALL = "gups,bytes=16MiB,updates=1000"
TIMES = ["wall_seconds", "accesses_per_second"]
SPACE = {"designs": ["native-4k", "native-2m"], "translation.l2.latency": ["9 cycles", "30 cycles"]}


def test_every_run_has_its_values(tmp_path):
    found = terrace.sweep(SPACE, [{"name": "gups", "bytes": "16MiB", "updates": range(1000, 3000, 1000)}], output=tmp_path)
    frame = found.to_pandas()
    assert len(frame) == 8 and found.asked == 8 and not found.failures
    assert sorted(set(frame["workload.updates"])) == [1000, 2000]
    assert str(frame["workload.updates"].dtype) == "int64"
    one = frame[(frame["design"] == "native-4k") & (frame["workload.updates"] == 2000)]
    assert list(one["set.translation.l2.latency"]) == ["9 cycles", "30 cycles"]
    alone = terrace.run(
        "native-4k", "gups,bytes=16MiB,updates=2000", set={"translation.l2.latency": "30 cycles"}
    )
    assert one["cycles"].tolist()[1] == alone.cycles


def test_a_sweep_goes_on_where_it_was(tmp_path):
    reported = []
    first = terrace.sweep(SPACE, SMALL, output=tmp_path, progress=lambda notes, tasks: reported.append(1))
    table = first.to_pandas().drop(columns=TIMES)
    runs = sorted((tmp_path / "runs").iterdir())
    before = [path.stat().st_mtime_ns for path in runs]
    runs[2].unlink()
    again = terrace.sweep(SPACE, SMALL, output=tmp_path)
    assert again.to_pandas().drop(columns=TIMES).equals(table)
    after = [path.stat().st_mtime_ns for path in runs]
    assert [a == b for a, b in zip(after, before)] == [True, True, False, True]
    assert len(terrace.sweep({**SPACE, "designs": ["native-4k"]}, SMALL, output=tmp_path)) == 2


def test_the_folder_has_the_table_as_files(tmp_path):
    import pandas
    import polars

    found = terrace.sweep(SPACE, SMALL, output=tmp_path)
    frame = found.to_pandas()
    assert polars.read_parquet(tmp_path / "results.parquet").rows() == found.to_polars().rows()
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "results.parquet"), frame, check_dtype=False)
    assert (tmp_path / "results.csv").read_text().count("\n") == 5


def test_any_table_becomes_parquet(tmp_path):
    import polars

    table = terrace.Table({"n": ("integer", [2**64 - 1, None]), "x": ("real", [None, 0.1]), "t": ("text", ["a", None])})
    table.to_parquet(tmp_path / "t.parquet")
    assert polars.read_parquet(tmp_path / "t.parquet").rows() == table.to_polars().rows()
    result = terrace.compare(["native-4k"], SMALL)
    result.write(tmp_path / "out")
    assert polars.read_parquet(tmp_path / "out/results.parquet").rows() == result.to_polars().rows()


def test_a_file_is_the_same_sweep(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(
        'designs = ["native-4k", "native-2m"]\n'
        f'workloads = ["{SMALL}"]\n'
        '[set]\n"translation.l2.latency" = ["9 cycles", "30 cycles"]\n'
    )
    of_file = terrace.sweep(file, output=tmp_path / "file").to_pandas().drop(columns=TIMES)
    assert of_file.equals(terrace.sweep(SPACE, SMALL).to_pandas().drop(columns=TIMES))


def test_options_make_other_runs(tmp_path):
    base = terrace.sweep(["native-4k"], SMALL).rows()[0]
    whole = terrace.sweep(["native-4k"], SMALL, whole=True).rows()[0]
    assert whole["accesses"] > base["accesses"]
    assert terrace.sweep(["native-4k"], SMALL, fidelity="pages").rows()[0]["fidelity"] == "pages"
    assert terrace.sweep(["native-4k"], SMALL, scale=2).rows()[0]["scale"] == 2
    assert terrace.sweep({"designs": "native-4k", "machines": "zen4-cxl"}, SMALL).rows()[0]["machine"] == "zen4-cxl"
    assert terrace.sweep(["native-4k"], SMALL, fast_forward=True).rows()[0]["cycles"] != base["cycles"]


def test_traces_are_inputs(tmp_path):
    trace = terrace.record(tmp_path / "a.trace", workload=SMALL)
    found = terrace.sweep(["native-4k"], [trace, SMALL])
    rows = found.rows()
    assert [row["input"] for row in rows] == ["a", "gups"] and rows[0]["cycles"] == rows[1]["cycles"]


def test_inputs_of_one_name_are_told_apart():
    found = terrace.sweep(["native-4k"], ["gups,bytes=2MiB,updates=1000", "gups,bytes=16MiB,updates=1000"])
    assert [row["input"] for row in found.rows()] == ["gups", "gups-2"]


def test_designs_of_one_name_are_refused(tmp_path):
    for folder, base in (("d1", "native-4k"), ("d2", "native-2m")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.toml").write_text(f'extends = "{base}"\n')
    with pytest.raises(terrace.RequestError, match='are both named "x"; a sweep needs distinct names'):
        terrace.sweep([tmp_path / "d1/x.toml", tmp_path / "d2/x.toml"], SMALL)


def test_the_callers_space_stays_as_it_is():
    space = {"designs": ["native-4k"], "workload": [{"name": "gups", "set": {"bytes": "2MiB", "updates": 1000}}]}
    inputs = [{"name": "gups", "bytes": "4MiB", "updates": 1000}]
    assert terrace.sweep(space, inputs).asked == 2
    assert len(space["workload"]) == 1 and terrace.sweep(space, inputs).asked == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: terrace.sweep({"design": ["native-4k"]}, SMALL), 'unknown key "design"; did you mean "designs"?'),
        (lambda: terrace.sweep(["native-4q"], SMALL), 'did you mean "native-4k"?'),
        (lambda: terrace.sweep(["native-4k"]), "a sweep needs workloads"),
        (lambda: terrace.sweep(["native-4k"], [["ls"]]), "record it first"),
        (lambda: terrace.sweep("no.toml"), "no.toml: No such file"),
        (lambda: terrace.sweep("no.toml", SMALL), "give the file alone"),
        (lambda: terrace.sweep(["native-4k"], SMALL, retries=-1), "retries: -1"),
        (lambda: terrace.sweep(["native-4k"], SMALL, group=0), "group: 0"),
        (lambda: terrace.sweep(["native-4k"], SMALL, scale=0), "scale: 0 is not in 1..=16"),
        (lambda: terrace.sweep(["native-4k"], SMALL, scale=1.5), "scale: 1.5 is not a whole number"),
        (lambda: terrace.sweep(["native-4k"], SMALL, time_scale=0), "time_scale: 0 is not at least 1"),
        (lambda: terrace.sweep("no.toml", scale=0), "give the file alone"),
        (lambda: terrace.sweep({"designs": ["native-4k"], "os.pages": []}, SMALL), "os.pages: an empty list"),
    ],
)
def test_wrong_sweeps_are_refused_in_words(call, words):
    with pytest.raises(terrace.RequestError) as raised:
        call()
    assert words in str(raised.value)


def test_a_run_that_fails_leaves_the_others():
    space = {
        "designs": ["native-4k", "native-2m"],
        "native-2m:tier.dram.capacity": "32 MiB",
        "native-2m:tier.cxl.capacity": "32 MiB",
        "native-2m:os.reserved": "0 B",
    }
    with pytest.raises(terrace.RunError, match="1 of 2 runs succeeded: native-2m on gups: ") as raised:
        terrace.sweep(space, "gups,bytes=96MiB,updates=1e4")
    assert [row["design"] for row in raised.value.result.rows()] == ["native-4k"]


def test_a_folder_that_nobody_named_goes_with_the_result():
    found = terrace.sweep(["native-4k"], "gups,bytes=4MiB,updates=1000")
    folder = found.folder
    assert os.path.isfile(os.path.join(folder, "results.csv"))
    del found
    gc.collect()
    assert not os.path.exists(folder)


def test_a_run_of_another_sweep_is_not_kept(tmp_path):
    plan = _terrace.Sweep.of_json('{"designs": ["native-4k", "native-2m"], "workloads": ["%s"]}' % SMALL)
    packed, failures = plan.run([[0]], None, None)
    assert not failures and packed[0][0] == 0
    with pytest.raises(terrace.RunError, match="is no run of"):
        plan.keep(str(tmp_path), 1, packed[0][1])
    plan.keep(str(tmp_path), *packed[0])
    assert plan.missing(str(tmp_path)) == [1]


@pytest.mark.skipif(not os.environ.get("TERRACE_BINARY"), reason="TERRACE_BINARY names no terrace command")
def test_the_command_and_the_package_share_runs(tmp_path):
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(f'designs = ["native-4k", "native-2m"]\nworkloads = ["{SMALL}"]\n')
    command = [os.environ["TERRACE_BINARY"], "sweep", file, "-o", out]
    lines = subprocess.run([*command, "--print-commands", "--group", "1"], capture_output=True, text=True, check=True)
    lines = lines.stdout.splitlines()
    assert len(lines) == 2 and all("--only" in line for line in lines)
    for line in lines:
        subprocess.run([os.environ["TERRACE_BINARY"], *line.split()[1:]], check=True)
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert len(terrace.sweep(file, output=out)) == 2
    assert before == {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
