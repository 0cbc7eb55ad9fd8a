"""Sweeps on a local Ray cluster of several processes. Needs `ray`; TERRACE_NEEDS_RAY=1 makes its absence a failure."""

import os
import signal
import threading
import time

import pytest

import terrace

if os.environ.get("TERRACE_NEEDS_RAY"):
    import ray
else:
    ray = pytest.importorskip("ray")

TIMES = ["wall_seconds", "accesses_per_second"]
SPACE = {"designs": ["native-4k", "native-2m"], "translation.l2.latency": ["9 cycles", "30 cycles"]}
SLOW = "gups,bytes=64MiB,updates=1e6"


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()


def ancestors(process):
    while process > 1:
        yield process
        with open(f"/proc/{process}/status") as status:
            process = next(int(line.split()[1]) for line in status if line.startswith("PPid:"))


def workers():
    """Processes of this cluster that run a group."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as words:
                if words.read().startswith(b"ray::terrace") and os.getpid() in ancestors(int(name)):
                    found.append(int(name))
        except (OSError, StopIteration):
            continue  # It has just ended.
    return found


def test_a_cluster_returns_what_this_computer_does(tmp_path):
    small = "gups,bytes=16MiB,updates=1000"
    here = terrace.sweep(SPACE, small).to_pandas().drop(columns=TIMES)
    there = terrace.sweep(SPACE, small, ray=True, output=tmp_path, group=1)
    assert there.to_pandas().drop(columns=TIMES).equals(here)
    assert (tmp_path / "results.parquet").exists()


def test_a_worker_that_is_killed_loses_no_run(tmp_path):
    killed = []

    def kill():
        limit = time.monotonic() + 60
        while not killed and time.monotonic() < limit:
            for worker in workers()[:1]:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    found = terrace.sweep(SPACE, SLOW, ray=True, output=tmp_path, group=1)
    thread.join()
    assert killed and len(found) == 4 and not found.failures
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_without_retries_a_killed_worker_is_said_and_the_sweep_goes_on(tmp_path):
    killed = []

    def kill():
        while not killed:
            for worker in workers()[:1]:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(terrace.RunError, match="3 of 4 runs succeeded") as raised:
        terrace.sweep(SPACE, SLOW, ray=True, output=tmp_path, group=1, retries=0)
    thread.join()
    assert len(raised.value.result) == 3
    again = terrace.sweep(SPACE, SLOW, ray=True, output=tmp_path, group=1)
    assert len(again) == 4
