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
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
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
d = {i: str(i) for i in range(2500000)}
r = random.Random(1)
print(sum(len(d[r.randrange(2500000)]) for _ in range(1500000)))
"""
HASH = "my %h; $h{$_} = $_ for 1..2000000; my $s = 0; $s += $h{1 + ($_ * 7919) % 2000000} for 1..2000000; print $s"
TABLE = """
create table t(a integer, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 700000)
insert into t select i * 7919 % 700001, 'value ' || i from n;
create index k on t(a);
select count(*), sum(length(u.b)) from t join t u on u.a = (t.a * 31) % 700001;
"""
SHELL = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done"
workload = [f"{folder}/terrace", "workload", "run"]
PROGRAMS = {
    "gups, 512 MiB": [*workload, "gups,bytes=512MiB,updates=5e7"],
    "hashjoin": [*workload, "hashjoin"],
    "xsbench": [*workload, "xsbench"],
    "python3, a dictionary": ["python3", "-c", DICTIONARY],
    "perl, a hash": ["perl", "-e", HASH],
    "sort": ["sort", "--parallel=1", "-S", "600M", "-o", "/dev/null", numbers],
    "sqlite3, in memory": ["sqlite3", ":memory:", TABLE],
    "redis-server": None,
    "sh, 300 short programs": ["sh", "-c", SHELL],
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
    for kind, requests in [("set", 700000), ("get", 1000000)]:
        subprocess.run(
            ["redis-benchmark", "-p", str(port), "-t", kind, "-r", "400000", "-n", str(requests), "-d", "512", "-P", "32", "-q"],
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


subprocess.run(f"seq 1 4000000 | shuf --random-source=/bin/sh -o {numbers} || seq 4000000 -1 1 > {numbers}", shell=True, check=True,
               stderr=subprocess.DEVNULL)
draw = random.Random(1)
print("| program | 4 KiB | huge pages | `libterrace.so` | better of both, relative to it |")
print("|---|---:|---:|---:|---:|")
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
    best = min(("4k", "thp"), key=lambda choice: statistics.median(taken[choice]))
    ratios = [static / arena for static, arena in zip(taken[best], taken["arena"])]
    low, ratio, high = middle(ratios)
    times = " | ".join(f"{statistics.median(taken[choice]):.2f} s" for choice in CHOICES)
    print(f"| {name} | {times} | {100 * ratio:.1f} % ({100 * low:.1f} to {100 * high:.1f}) |", flush=True)
