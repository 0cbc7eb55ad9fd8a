"""The measurements of scripts/bench-arena, which says what they are."""

import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

folder = os.path.abspath(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
chosen = sys.argv[3:]
work = tempfile.TemporaryDirectory()
numbers = os.path.join(work.name, "numbers")
port = 7831

CHOICES = {
    "4k": {},
    "thp": {"LD_PRELOAD": f"{folder}/libterrace_pages.so", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "arena": {"LD_PRELOAD": f"{folder}/libterrace.so"},
}
DICTIONARY = """
import random
d = {i: str(i) for i in range(700000)}
r = random.Random(1)
print(sum(len(d[r.randrange(700000)]) for _ in range(700000)))
"""
HASH = "my %h; $h{$_} = $_ for 1..600000; my $s = 0; $s += $h{1 + ($_ * 7919) % 600000} for 1..600000; print $s"
TABLE = """
create table t(a integer, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 250000)
insert into t select i * 7919 % 250007, 'value ' || i from n;
create index k on t(a);
select count(*), sum(length(u.b)) from t join t u on u.a = (t.a * 31) % 250007;
"""
SHELL = "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done"
workload = [f"{folder}/terrace", "workload", "run"]
PROGRAMS = {
    "gups, 256 MiB": [*workload, "gups,bytes=256MiB,updates=2e7"],
    "hashjoin": [*workload, "hashjoin"],
    "xsbench": [*workload, "xsbench"],
    "python3, a dictionary": ["python3", "-c", DICTIONARY],
    "perl, a hash": ["perl", "-e", HASH],
    "sort": ["sort", "--parallel=1", "-S", "200M", "-o", "/dev/null", numbers],
    "sqlite3, in memory": ["sqlite3", ":memory:", TABLE],
    "redis-server": None,
    "sh, 100 short programs": ["sh", "-c", SHELL],
}


def finish(process):
    """Waits for it; its processor time, with that of what it started and waited for."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def huge_share(pid):
    """How much of its anonymous memory lies in huge pages."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = {line.split(":")[0]: int(line.split()[1]) for line in file if line.rstrip().endswith("kB")}
        return lines["AnonHugePages"] / max(lines["Anonymous"], 1)
    except (OSError, KeyError, ValueError):
        return 0.0


def one(command, environment):
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    seconds = finish(process)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return seconds


def redis(environment):
    """Processor time of the server for a fixed number of requests, and the share of huge pages at the end."""
    server = subprocess.Popen(
        # By its default it forbids huge pages for itself, which the library respects.
        ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--disable-thp", "no", "--dir", work.name],
        env=environment, stdout=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    for kind, requests in [("set", 250000), ("get", 400000)]:
        subprocess.run(
            ["redis-benchmark", "-p", str(port), "-t", kind, "-r", "200000", "-n", str(requests), "-d", "512", "-P", "32", "-q"],
            stdout=subprocess.DEVNULL, check=True)
    share = huge_share(server.pid)
    server.send_signal(signal.SIGTERM)
    return finish(server), share


def measure(name, command, choice):
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "GLIBC_TUNABLES")}
    environment.update(CHOICES[choice])
    return redis(environment)[0] if command is None else one(command, environment)


def middle(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


subprocess.run(f"seq 1 1200000 | shuf --random-source=/bin/sh -o {numbers} || seq 1200000 -1 1 > {numbers}", shell=True, check=True,
               stderr=subprocess.DEVNULL)
draw = random.Random(1)
print("| program | 4 KiB | huge pages | `libterrace.so` | better of both, by the least times | by pairs |")
print("|---|---:|---:|---:|---:|---:|")
for name, command in PROGRAMS.items():
    if chosen and not any(name.startswith(word) for word in chosen):
        continue
    taken = {choice: [] for choice in CHOICES}
    # The first run of each warms memory and files up, and does not count.
    for count in range(rounds + 1):
        for choice in draw.sample(list(CHOICES), len(CHOICES)):
            seconds = measure(name, command, choice)
            if count:
                taken[choice].append(seconds)
    # Whatever else the machine does only adds to a run's time, so the least of each choice is the one that was disturbed least.
    least = {choice: min(seconds) for choice, seconds in taken.items()}
    best = min(("4k", "thp"), key=least.get)
    ratios = [static / arena for static, arena in zip(taken[best], taken["arena"])]
    low, ratio, high = middle(ratios)
    times = " | ".join(f"{least[choice]:.3f} s" for choice in CHOICES)
    print(f"| {name} | {times} | {100 * least[best] / least['arena']:.1f} % "
          f"| {100 * ratio:.1f} % ({100 * low:.1f} to {100 * high:.1f}) |", flush=True)
