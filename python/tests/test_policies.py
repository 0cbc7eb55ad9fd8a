"""Policies in Python decide as their twins in Rust do."""

import threading
import warnings

import pytest

import terrace
from terrace.policies import Idle, StaticRatio, nanoseconds

MACHINE = {"machine": "zen4-cxl"}
KV = "kv,keys=2e4,requests=1e4"


def apart_from_the_policys_own(run):
    return {name: value for name, value in run.stats.items() if not name.startswith("policy.")}


def test_a_static_ratio_places_as_its_twin():
    workload = "gups,bytes=32MiB,updates=2e4"
    for share in (0.25, 0.8):
        ours = terrace.run("first-touch", workload, policy=StaticRatio(share), **MACHINE)
        twin = terrace.run("bw-aware", workload, set={"os.policy.fast_share": share}, **MACHINE)
        assert apart_from_the_policys_own(ours) == apart_from_the_policys_own(twin)
        assert ours.stats["tier.cxl.bytes_read"] > 0


def test_idle_moves_what_its_twin_moves():
    ours = terrace.run("first-touch", KV, policy=Idle("200 us"), **MACHINE)
    twin = terrace.run("idle", KV, set={"os.policy.scan": "200 us"}, **MACHINE)
    assert apart_from_the_policys_own(ours) == apart_from_the_policys_own(twin)
    assert ours.stats["vmstat.pgmigrate_success"] > 1000


def test_a_run_is_named_by_its_own_policy_and_not_by_the_designs():
    run = terrace.run("idle", KV, policy=Idle("200 us"), **MACHINE)
    own = {key: value for key, value in run.parameters.items() if key.startswith("os.policy.")}
    assert own == {"os.policy.name": "Idle", "os.policy.object": "Idle('200 us')"}
    assert run.design_summary == "the policy Idle in place of idle"
    assert not any("acts in periods" in note for note in run.notes)
    with pytest.raises(terrace.RequestError, match="time_scale divides the periods of built-in policies"):
        terrace.run("idle", KV, policy=Idle("200 us"), time_scale=1000, **MACHINE)
    with pytest.raises(terrace.RequestError, match="os.policy.scan is for built-in policies"):
        terrace.run("idle", KV, policy=Idle("200 us"), set={"os.policy.scan": "1 s"}, **MACHINE)


def test_an_exception_ends_the_run():
    class Broken(terrace.Policy):
        def on(self, now, signals, memory):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        terrace.run("first-touch", "gups,bytes=16MiB,updates=1e9", policy=Broken(), **MACHINE)


@pytest.mark.parametrize("answer", [0.5, -1, "1 ms", 1 << 64])
def test_what_is_no_time_is_named(answer):
    class Hasty(terrace.Policy):
        def on(self, now, signals, memory):
            return answer

    with pytest.raises(terrace.RequestError, match="Hasty.on returned .*; return a whole number of nanoseconds"):
        terrace.run("first-touch", KV, policy=Hasty(), **MACHINE)


def test_needs_are_checked():
    class Wants(terrace.Policy):
        needs = ("second-sight",)

    with pytest.raises(terrace.RequestError, match='no capability is called "second-sight"; there are accessed-bits, '):
        terrace.run("first-touch", KV, policy=Wants(), **MACHINE)

    class Cached(terrace.Policy):
        needs = ("copyless-exchange",)

    with pytest.raises(terrace.TerraceError, match="copyless-exchange"):
        terrace.run("first-touch", KV, policy=Cached(), **MACHINE)


def test_memory_is_lent_for_the_call_alone():
    kept = []

    class Keeps(terrace.Policy):
        def on(self, now, signals, memory):
            kept.append(memory)
            assert [tier["name"] for tier in memory.tiers()] == ["dram", "cxl"]
            with pytest.raises(terrace.RequestError, match="tiers are 0 to 1"):
                memory.scan(7)
            return None

    terrace.run("first-touch", "gups,bytes=16MiB,updates=1000", policy=Keeps(), **MACHINE)
    assert len(kept) >= 1
    with pytest.raises(terrace.RequestError, match="the memory can be used (while|on the thread)"):
        kept[0].tiers()
    kept.clear()


def test_memory_is_lent_to_one_thread():
    said, kept = [], []

    def elsewhere(memory):
        try:
            memory.tiers()
        except terrace.RequestError as error:
            said.append(str(error))

    class Shares(terrace.Policy):
        def on(self, now, signals, memory):
            if not said:
                thread = threading.Thread(target=elsewhere, args=(memory,))
                thread.start()
                thread.join()
            memory.tiers()  # It is still this thread's.
            kept.append(memory)
            return None

    terrace.run("first-touch", "gups,bytes=16MiB,updates=1000", policy=Shares(), **MACHINE)
    assert said == ["the memory can be used on the thread that calls the policy, and on no other"]
    # The last reference goes on yet another thread, without a word.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropping = threading.Thread(target=kept.clear)
        dropping.start()
        dropping.join()


def test_exact_accesses_and_hint_faults_are_signals():
    seen = set()

    class Gets(terrace.Policy):
        needs = ("hint-faults", "exact-accesses")
        signals = ("allocated",)

        def on(self, now, signals, memory):
            seen.update(signal["kind"] for signal in signals)
            memory.sample_accesses(1)
            memory.watch([page["page"] for page in memory.scan()][:2000], "hint")
            return now + nanoseconds("1 ms")

    # Larger than the caches, so that accesses reach memory.
    terrace.run("first-touch", "gups,bytes=64MiB,updates=2e5", policy=Gets(), whole=True, **MACHINE)
    assert {"tick", "allocated", "access", "hint-fault"} <= seen
