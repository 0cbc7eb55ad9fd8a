"""Policies in Python over several runs: an object for each, beside designs, with what they need, and what they raise."""

import dataclasses
import threading

import pytest

import terrace
from terrace.policies import Idle, StaticRatio, nanoseconds

MACHINE = {"machine": "zen4-cxl"}
KV = "kv,keys=20000,requests=3000"
SMALL = "kv,keys=2000,requests=1000"


def test_an_object_manages_one_run():
    policy = StaticRatio(0.3)
    first = terrace.run("first-touch", KV, policy=policy, **MACHINE)
    with pytest.raises(terrace.RequestError, match=r"StaticRatio\(0.3\) has managed a run.*policy=lambda: StaticRatio\(0.3\)"):
        terrace.run("first-touch", KV, policy=policy, **MACHINE)
    # What makes it makes each time a fresh one.
    again = [terrace.run("first-touch", KV, policy=lambda: StaticRatio(0.3), **MACHINE) for _ in range(2)]
    assert [run.cycles for run in again] == [first.cycles] * 2


def test_a_request_that_is_refused_leaves_the_object_as_it_was():
    class Guest(terrace.Policy):
        needs = ("copyless-exchange",)

    policy = Guest()
    with pytest.raises(terrace.TerraceError, match="copyless-exchange"):
        terrace.run("first-touch", SMALL, policy=policy, **MACHINE)
    policy.needs = ()
    assert terrace.run("first-touch", SMALL, policy=policy, **MACHINE).cycles > 0


def test_classes_and_kinds_of_objects():
    @dataclasses.dataclass(frozen=True)
    class Frozen(terrace.Policy):
        share: float = 0.5

    run = terrace.run("first-touch", SMALL, policy=Frozen, **MACHINE)
    assert run.parameters["os.policy.name"] == "Frozen" and "share=0.5" in run.parameters["os.policy.object"]
    for policy, words in (
        (StaticRatio, r"StaticRatio\(\) cannot be made: .*fast_share.*policy=lambda: StaticRatio\(…\)"),
        ("tpp", r"'tpp' is no terrace.Policy.*a built-in policy is a design: terrace.run\('tpp', …\)"),
        (object(), "is no terrace.Policy, and no function that makes one"),
        (lambda: 7, "returned 7, which is no terrace.Policy"),
    ):
        with pytest.raises(terrace.RequestError, match=words):
            terrace.run("first-touch", SMALL, policy=policy, **MACHINE)


def test_the_call_that_repeats_a_run_does(tmp_path):
    trace = terrace.record(tmp_path / "kv.trace", workload=SMALL)
    for given in ({"workload": SMALL}, {"trace": trace}):
        options = {"set": {"translation.l2.latency": "20 cycles"}, "scale": 2, "whole": True}
        run = terrace.run("first-touch", policy=lambda: StaticRatio(0.3), **given, **options, **MACHINE)
        assert run.command.startswith('terrace.run("first-touch", ') and run.command.endswith("policy=StaticRatio(0.3))")
        again = eval(run.command, {"terrace": terrace, "StaticRatio": StaticRatio})
        assert again.stats == run.stats and again.parameters == run.parameters


def test_times_beyond_the_end_never_come():
    def run(answer):
        class Once(terrace.Policy):
            calls = 0

            def on(self, now, signals, memory):
                Once.calls += 1
                return answer

        cycles = terrace.run("first-touch", SMALL, policy=Once, **MACHINE).cycles
        return Once.calls, cycles

    never = run(None)
    assert never[0] == 1
    for end in (2**62, 2**63, 2**64 - 1):
        assert run(end) == never


CALLS = [
    ("migration", lambda memory, pages: memory.migrate([(pages[0], 1)])),
    ("exchange", lambda memory, pages: memory.exchange([(pages[0], pages[1])])),
    ("accessed-bits", lambda memory, pages: memory.scan(clear_accessed=True)),
    ("dirty-bits", lambda memory, pages: memory.scan(clear_dirty=True)),
    ("flush-on-clear", lambda memory, pages: memory.scan(flush=True)),
    ("hint-faults", lambda memory, pages: memory.watch(pages[:1], "hint")),
    ("write-faults", lambda memory, pages: memory.watch(pages[:1], "hint-store")),
    ("counted-faults", lambda memory, pages: memory.watch(pages[:1], "count")),
    ("counted-faults", lambda memory, pages: memory.counts()),
    ("exact-accesses", lambda memory, pages: memory.sample_accesses(1)),
    ("access-samples", lambda memory, pages: memory.sample_accesses(100)),
]


@pytest.mark.parametrize(("need", "call"), CALLS)
def test_what_is_used_is_among_the_needs(need, call):
    def policy(named):
        class Uses(terrace.Policy):
            needs = named
            used = False

            def on(self, now, signals, memory):
                pages = [page["page"] for page in memory.scan()]
                if len(pages) > 1 and not Uses.used:
                    Uses.used = True
                    call(memory, pages)
                return now + 10_000

        return Uses

    with pytest.raises(terrace.RequestError, match=f'needs {need}, which the policy does not name; add "{need}" to `needs`'):
        terrace.run("first-touch", SMALL, policy=policy(()), **MACHINE)
    named = policy((need,))
    terrace.run("first-touch", SMALL, policy=named, **MACHINE)
    assert named.used


def test_bits_are_there_where_they_are_named():
    seen = {}

    def run(*named):
        class Looks(terrace.Policy):
            needs = named

            def on(self, now, signals, memory):
                for page in memory.scan():
                    seen[named] = set(page) & {"accessed", "dirty"}
                    assert set(memory.page(page["page"])) == set(page)
                return now + 10_000

        terrace.run("first-touch", SMALL, policy=Looks, **MACHINE)

    run()
    run("dirty-bits")
    run("accessed-bits", "dirty-bits")
    assert seen == {(): set(), ("dirty-bits",): {"dirty"}, ("accessed-bits", "dirty-bits"): {"accessed", "dirty"}}


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"needs": "migration"}, "needs: 'migration' is no tuple of names"),
        ({"needs": None}, "needs: None is no tuple of names"),
        ({"signals": ("tlb-miss",)}, "the signal tlb-miss needs tlb-misses"),
        ({"place": lambda *_: "x"}, r"Mine.place returned 'x'; return the number of a tier"),
        ({"place": lambda *_: -1}, r"Mine.place returned -1; return the number of a tier"),
        ({"place": lambda *_: 5}, "the policy asks for tier 5"),
        ({"report": lambda self: [1]}, r"Mine.report returned \[1\]; return a dictionary of names and numbers"),
    ],
)
def test_wrong_policies_are_refused_in_words(attributes, words):
    with pytest.raises(terrace.RequestError, match=words):
        terrace.run("first-touch", SMALL, policy=type("Mine", (terrace.Policy,), attributes), **MACHINE)


def test_shares_of_a_static_ratio():
    assert StaticRatio("30%").fast_share == 0.3 and StaticRatio(1).fast_share == 1
    for share in (50, -3, float("nan"), "x", None, True):
        with pytest.raises(terrace.RequestError, match="fast_share: .* is not a share"):
            StaticRatio(share)
    with pytest.raises(terrace.RequestError, match='10 is no span of time with its unit, such as "1 ms"'):
        Idle(10)
    assert nanoseconds("2 us") == 2000


def test_policies_stand_beside_designs():
    made = []

    def ratio():
        made.append(StaticRatio(0.25))
        return made[-1]

    result = terrace.compare(
        ["first-touch", "bw-aware"],
        KV,
        policy={"quarter": ratio, "half": lambda: StaticRatio(0.5)},
        set={"bw-aware:os.policy.fast_share": 0.25},
        **MACHINE,
    )
    assert [run.design for run in result.runs] == ["first-touch", "bw-aware", "quarter", "half"]
    assert result["quarter"].cycles == result["bw-aware"].cycles != result["half"].cycles
    assert [run.parameters.get("os.policy.object") for run in result.runs[2:]] == ["StaticRatio(0.25)", "StaticRatio(0.5)"]
    # The runs that intervals take have objects of their own.
    assert len(made) > 1 and len({id(policy) for policy in made}) == len(made)
    # Each has counted the pages of one run, those under another seed a few more or less.
    assert all(0.9 < policy.pages / made[0].pages < 1.1 for policy in made)
    alone = terrace.run("first-touch", KV, policy=StaticRatio(0.5), **MACHINE)
    assert alone.stats == result["half"].stats
    assert eval(result["half"].command, {"terrace": terrace, "StaticRatio": StaticRatio}).stats == alone.stats


def test_policies_stand_beside_built_in_ones_with_little_fast_memory():
    class Mine(Idle):
        pass

    result = terrace.compare(policies=["idle"], policy=[Mine], fast=["25%", "50%"], workload=KV, intervals=False, **MACHINE)
    assert [run.design for run in result.runs] == [
        "first-touch@25%", "first-touch@50%", "idle@25%", "idle@50%", "Mine@25%", "Mine@50%", "all-fast",
    ]
    small, large = result["Mine@25%"], result["Mine@50%"]
    assert small.stats["tier.dram.peak_pages"] < large.stats["tier.dram.peak_pages"]
    assert terrace.compare(policy=Mine, workload=SMALL, intervals=False, **MACHINE).baseline == "first-touch"


def test_one_that_raises_leaves_the_other_runs():
    class Broken(terrace.Policy):
        def on(self, now, signals, memory):
            raise ZeroDivisionError("mine")

    for call in (
        lambda: terrace.compare(["first-touch"], SMALL, policy=Broken, **MACHINE),
        lambda: terrace.sweep({"designs": "first-touch", "machines": "zen4-cxl"}, SMALL, policy=Broken),
    ):
        with pytest.raises(terrace.RunError, match="1 of 2 runs succeeded: Broken on kv: ZeroDivisionError: mine") as raised:
            call()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert raised.value.result.to_dict()["design"] == ["first-touch"]


def test_a_sweep_runs_policies_with_every_value():
    space = {"designs": ["first-touch", "bw-aware"], "machines": "zen4-cxl", "translation.l2.latency": ["9 cycles", "30 cycles"]}
    found = terrace.sweep(space, [KV, SMALL], policy={"half": lambda: StaticRatio(0.5)})
    frame = found.to_pandas()
    assert len(frame) == 12 and sorted(set(frame["design"])) == ["bw-aware", "first-touch", "half"]
    one = frame[(frame["design"] == "half") & (frame["set.translation.l2.latency"] == "30 cycles")]
    alone = terrace.run("first-touch", KV, policy=StaticRatio(0.5), set={"translation.l2.latency": "30 cycles"}, **MACHINE)
    assert alone.cycles in list(one["cycles"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: terrace.compare(["first-touch"], SMALL, policy=StaticRatio(0.3)), "is one object, and every run needs its own"),
        (lambda: terrace.compare(["first-touch"], SMALL, policy=[Idle, Idle]), 'two runs are both named "Idle"'),
        (lambda: terrace.compare(["first-touch"], SMALL, policy={"first-touch": Idle}), 'both named "first-touch"'),
        (lambda: terrace.sweep(["idle"], SMALL, policy={"idle": Idle}), 'both named "idle"'),
        (lambda: terrace.sweep(["idle"], SMALL, policy=Idle, output="/tmp/x"), "output: runs under a policy that is written in Python"),
        (lambda: terrace.sweep(["idle"], SMALL, policy=Idle, ray=True), "ray: runs under a policy that is written in Python"),
    ],
)
def test_wrong_policies_of_studies_are_refused(call, words):
    with pytest.raises(terrace.RequestError) as raised:
        call()
    assert words in str(raised.value)


def test_an_object_that_is_handed_out_twice_fails_the_second_run():
    policy, lock = StaticRatio(0.3), threading.Lock()

    def same():
        with lock:
            return policy

    with pytest.raises(terrace.RunError, match="3 of 4 runs succeeded: .*has managed a run") as raised:
        terrace.sweep({"designs": "first-touch", "machines": "zen4-cxl"}, [SMALL, KV], policy=same, group=1)
    assert len(raised.value.result) == 3


def test_what_a_policy_reports_is_a_count_or_a_level():
    class Counts(terrace.Policy):
        needs = ("accessed-bits", "migration", "flush-on-clear")

        def __init__(self):
            self.calls = 0

        def on(self, now, signals, memory):
            self.calls += 1
            return now + 1000

        def report(self):
            return {"calls": self.calls, "calls_at_end": float(self.calls), "threshold": 5.5}

    inside, whole = (terrace.run("first-touch", SMALL, policy=Counts, whole=whole, **MACHINE).stats for whole in (False, True))
    assert whole["policy.own.calls"] == whole["policy.own.calls_at_end"]
    assert 0 < inside["policy.own.calls"] < inside["policy.own.calls_at_end"]
    assert inside["policy.own.threshold"] == whole["policy.own.threshold"] == 5.5


def test_what_is_of_built_in_policies_is_in_no_call_that_repeats_a_run():
    options = {"set": {"os.policy.scan_period": "100 ms", "translation.l2.latency": "20 cycles"}, "time_scale": 10}
    made = {"a": lambda: StaticRatio(0.3)}
    result = terrace.compare(["tpp"], SMALL, policy=made, intervals=False, **options, **MACHINE)
    again = eval(result["a"].command, {"terrace": terrace, "StaticRatio": StaticRatio})
    assert again.cycles == result["a"].cycles and "20 cycles" in result["a"].command


def test_seven_of_ten_pages_are_the_same_ones():
    shared = terrace.run("bw-aware", "kv,keys=1e5,requests=3e4", set={"os.policy.fast_share": 0.7}, **MACHINE)
    own = terrace.run("bw-aware", "kv,keys=1e5,requests=3e4", policy=StaticRatio(0.7), **MACHINE)
    assert own.cycles == shared.cycles
