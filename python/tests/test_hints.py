"""Files of hints: counted on one input, given to studies of others."""

import pytest

import terrace

SMALL = "gpu-xsbench,lookups=2000"
OTHER = "gpu-xsbench,lookups=6000,seed=7"
TENTH = {"tier.gddr.capacity": "2560 KiB", "os.reserved": "0 B", "os.page_table_tier": "ddr"}


@pytest.fixture(scope="module")
def hints(tmp_path_factory):
    path = tmp_path_factory.mktemp("hints") / "xsbench.toml"
    return terrace.profile(path, SMALL, machine="gpu-gtx480")


def test_a_profile_has_the_structures_by_name(hints):
    names = {site["name"] for site in hints.sites}
    assert {"unionized_energies", "nuclide_grids", "index_grid"} <= names
    assert all(site["bytes"] > 0 for site in hints.sites)
    assert list(hints.to_pandas()["name"]) == [site["name"] for site in hints.sites]
    text = open(hints).read()
    assert text.count("[[site]]") == len(hints.sites) and "terrace.profile(" in text


def test_a_run_is_placed_by_hints_of_another_input(hints):
    own = terrace.run("gpu-annotated", OTHER, set=TENTH)
    given = terrace.run("gpu-annotated", OTHER, set=TENTH, hints=hints)
    assert "--hints" in given.command and "--hints" not in own.command
    # All hints by hand: what is cold by its hint lies in the slow memory, so that the run is slower.
    cold = str(hints.file).replace("xsbench", "cold")
    with open(cold, "w") as file:
        file.write(open(hints).read().replace("[[site]]", '[[site]]\nhint = "CO"'))
    assert terrace.run("gpu-annotated", OTHER, set=TENTH, hints=cold).seconds_simulated > given.seconds_simulated


def test_a_comparison_takes_hints_where_a_design_does(hints):
    result = terrace.compare(["gpu-bw-aware", "gpu-annotated"], OTHER, set=TENTH, hints=hints, intervals=False)
    assert ["--hints" in run.command for run in result.runs] == [False, True]
    alone = terrace.run("gpu-annotated", OTHER, set=TENTH, hints=hints)
    assert result["gpu-annotated"].stats == alone.stats


def test_a_sweep_takes_hints(hints, tmp_path):
    space = {"designs": ["gpu-annotated", "gpu-bw-aware"], "set": {**TENTH, "gpu-annotated:os.policy.rank": ["density", "total"]}}
    found = terrace.sweep(space, [OTHER], hints=hints, output=tmp_path / "out")
    assert len(found) == 3
    file = tmp_path / "sweep.toml"
    file.write_text(
        f'designs = ["gpu-annotated"]\nworkloads = ["{OTHER}"]\nhints = "{hints.file}"\n'
        '[set]\n"tier.gddr.capacity" = "2560 KiB"\n"os.reserved" = "0 B"\n"os.page_table_tier" = "ddr"\n'
    )
    alone = terrace.sweep(file).to_pandas()
    first = found.to_pandas()
    assert alone["cycles"][0] in list(first["cycles"])


def test_tune_takes_hints(hints):
    tuned = terrace.tune(
        "annotated", "xsbench,lookups=500,gridpoints=100", hints=hints, parameters=["growth"], runs=2, machine="zen4-cxl"
    )
    assert tuned.policy == "annotated"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda hints: terrace.run("gpu-local", SMALL, hints=hints), "no design here places data structures by hints"),
        (lambda hints: terrace.sweep(["gpu-local"], [SMALL], hints=hints), "no design here places data structures"),
        (lambda hints: terrace.advise(SMALL, policies=["tpp"], hints=hints), "no design here places data structures"),
        (lambda hints: terrace.tune("tpp", SMALL, hints=hints), "no design here places data structures by hints"),
        (lambda hints: terrace.run("gpu-annotated", SMALL, hints="no/such.toml"), "no/such.toml"),
        (lambda hints: terrace.run("gpu-annotated", SMALL, hints=hints, policy=object()), "takes no hints"),
        (lambda hints: terrace.run("gpu-annotated", SMALL, hints=__file__), "test_hints.py:"),
        (lambda hints: terrace.profile("/no/such/folder/x.toml", SMALL), "/no/such/folder"),
    ],
)
def test_wrong_hints_are_refused_in_words(call, words, hints):
    with pytest.raises(terrace.TerraceError) as raised:
        call(hints)
    assert words in str(raised.value)
