"""`bench/run`: the same loads on a cluster of Ferry and on one of upstream's components, one after the other.

Both clusters are those of `conformance/`, each in a network namespace of its own; the loads are `ferry-bench-cluster`,
`ferry-bench-schedule`, `ferry-bench-controllers` and `ferry-bench-api`. A part that cannot be trusted ends the run with the reason, and no table is printed.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

import command_line  # noqa: E402
from suite import images, places  # noqa: E402
from suite.ferry import Ferry  # noqa: E402
from suite.machine import Network  # noqa: E402
from suite.places import Untrusted  # noqa: E402
from suite.upstream import Upstream  # noqa: E402

PARTS = ["start", "idle", "pods", "memory", "schedule", "controllers", "api", "kubectl"]
STARTS = 3
API_RUNS = 3
SETTLE, IDLE = 20, 60
STORED_PODS = (10_000, 50_000)
# The part of a clock's number that means the CPU time of a process.
CPUCLOCK_SCHED = 2


class Table:
    """Values per row and side, in the order in which they came."""

    def __init__(self):
        self.rows = {}

    def add(self, row, unit, side, values):
        self.rows.setdefault((row, unit), {}).setdefault(side, []).extend(values)

    def text(self):
        lines = ["| what | unit | Ferry | upstream | ratio |", "|---|---|---|---|---|"]
        for (row, unit), sides in self.rows.items():
            ours, theirs = sides.get("ferry", []), sides.get("upstream", [])
            lines.append(f"| {row} | {unit} | {shown(ours)} | {shown(theirs)} | {ratio(unit, ours, theirs)} |")
        return "\n".join(lines)


def shown(values):
    """The median, and how far the values lie apart."""
    if not values:
        return "-"
    middle = statistics.median(values)
    spread = f" ± {(max(values) - min(values)) / 2 / middle * 100:.0f} %" if len(values) > 1 and middle else ""
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2 if middle >= 0.1 else 4
    return f"{middle:.{digits}f}{spread}"


def ratio(unit, ours, theirs):
    """How many times better Ferry is; where more is better, the other way round."""
    if not ours or not theirs:
        return "-"
    less, more = statistics.median(ours), statistics.median(theirs)
    if unit == "/s":
        less, more = more, less
    return f"{more / less:.1f}" if less else "-"


def cpu(pids):
    """Seconds of CPU that processes have used, by their own clocks: ticks are too coarse for what idles."""
    return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in pids)


def resident(pids):
    """Megabytes that processes have in memory."""
    lines = [line for pid in pids for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS:")]
    return sum(int(line.split()[1]) for line in lines) * 1024 / 1e6


class Side:
    """One of the two: its cluster, and what is measured on it."""

    def __init__(self, name, parts, table):
        self.name, self.parts, self.table = name, parts, table

    def add(self, row, unit, *values):
        self.table.add(row, unit, self.name, values)

    def measure(self):
        starts = STARTS if "start" in self.parts else 1
        for n in range(starts):
            self.once(last=n + 1 == starts)

    def once(self, last):
        """A cluster from its start to its end; the loads are put on the last one."""
        scratch = Path(tempfile.mkdtemp(prefix="fb", dir="/tmp"))
        try:
            with Network(f"bench-{os.getpid()}") as network:
                cluster = self.cluster(network, scratch / "c")
                try:
                    cluster.start()
                    if "start" in self.parts:
                        self.add("start to Ready node", "s", cluster.seconds)
                    if last:
                        self.loads(network, cluster)
                    if cluster.dead():
                        raise Untrusted(f"{self.name}: {', '.join(cluster.dead())} ended while it was measured")
                finally:
                    cluster.stop()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def cluster(self, network, directory):
        return Ferry(network, directory) if self.name == "ferry" else Upstream(network, directory, dns=False)

    def loads(self, network, cluster):
        if "idle" in self.parts:
            self.idle(cluster)
        program = [places.target() / "release" / "ferry-bench-cluster", "--kubeconfig", cluster.kubeconfig]
        if "pods" in self.parts:
            # The first pod of a cluster pays for what is done once.
            self.load(network, [*program, "pods", "--count=1", "--repeat=1"], keep=False)
            for count, repeat in ((1, 7), (3, 7), (50, 3)):
                self.load(network, [*program, "pods", f"--count={count}", f"--repeat={repeat}"])
            self.load(network, [*program, "deployment", "--repeat=7"])
        if "memory" in self.parts:
            for count in STORED_PODS:
                self.memory(network, cluster, program, count)

    def memory(self, network, cluster, program, count):
        """The control plane with many pods; a cluster is used for all counts, each on top of the one before."""
        stored = sum(size for size in STORED_PODS if size < count)
        command = [*program, "stored-pods", f"--count={count - stored}", f"--first={stored}"]
        with subprocess.Popen(network.inside(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            if not child.stdout.readline():
                raise Untrusted(f"{self.name}: pods could not be stored")
            time.sleep(SETTLE)
            self.add(f"memory of the control plane with {count} pods", "MB", resident(cluster.control_plane()))
            child.stdin.close()

    def idle(self, cluster):
        time.sleep(SETTLE)
        groups = {"control plane": cluster.control_plane(), "control plane and node": cluster.whole()}
        before = {name: cpu(pids) for name, pids in groups.items()}
        time.sleep(IDLE)
        for name, pids in groups.items():
            self.add(f"idle, {name}: memory", "MB", resident(pids))
            self.add(f"idle, {name}: CPU", "ms/s", (cpu(pids) - before[name]) * 1000 / IDLE)

    def load(self, network, command, keep=True):
        told = subprocess.run(network.inside(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if told.returncode:
            raise Untrusted(f"{self.name}: {' '.join(map(str, command[3:]))}: {told.stderr.strip()[-500:]}")
        self.read(told.stdout, keep)

    def read(self, text, keep=True):
        for line in map(json.loads, text.splitlines()):
            # Pods that are few end as the runtime lets them; only many say something about the cluster.
            if keep and line["row"] not in ("delete 1 pods", "delete 3 pods"):
                self.add(line["row"], line["unit"], *line["values"])


def schedule(table, options):
    """The schedulers on upstream's scheduler_perf workloads, each with an API server of its own."""
    built = places.programs("kube-apiserver", "etcd", "kube-scheduler")
    release = places.target() / "release"
    command = [release / "ferry-bench-schedule", "--ferry", places.ferry(), "--upstream", built["kube-apiserver"],
               "--etcd", built["etcd"], "--kube-scheduler", built["kube-scheduler"], "--dir", release, *options]
    told = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if told.returncode:
        raise Untrusted(f"bench/schedule: {told.stderr.strip()[-500:]}")
    for line in map(json.loads, told.stdout.splitlines()):
        table.add(line["row"], line["unit"], line["server"], [line["value"]])


def controllers(table, options):
    """The controller managers, each on an API server of its own; pods are played."""
    built = places.programs("kube-apiserver", "etcd", "kube-controller-manager")
    release = places.target() / "release"
    command = [release / "ferry-bench-controllers", "--ferry", places.ferry(), "--upstream", built["kube-apiserver"],
               "--etcd", built["etcd"], "--kube-controller-manager", built["kube-controller-manager"], "--dir", release,
               *options]
    told = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if told.returncode:
        raise Untrusted(f"bench/controllers: {told.stderr.strip()[-500:]}")
    for line in map(json.loads, told.stdout.splitlines()):
        table.add(line["row"], line["unit"], line["server"], [line["value"]])


def api(table):
    """The API server alone: what an operation costs it, and how many go through."""
    built = places.programs("kube-apiserver", "etcd")
    release = places.target() / "release"
    command = [release / "ferry-bench-api", "--json", "--ferry", places.ferry(), "--upstream", built["kube-apiserver"],
               "--etcd", built["etcd"], "--dir", release]
    for _ in range(API_RUNS):
        told = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if told.returncode:
            raise Untrusted(f"bench/api: {told.stderr.strip()[-500:]}")
        lines = [json.loads(line) for line in told.stdout.splitlines()]
        for line in lines:
            table.add(f"API, {line['row']}: CPU", "µs", line["server"], [line["cpu"]])
        for line in lines:
            table.add(f"API, {line['row']}", "/s", line["server"], [line["rate"]])


def main():
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"parts: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--workload", action="append", default=[], metavar="PART",
                        help="schedule: only workloads whose names contain this; may be given several times")
    parser.add_argument("--nodes", type=int, help="schedule: only workloads with this many nodes (500, 1000, 5000)")
    parser.add_argument("--load", action="append", default=[], metavar="NAME",
                        help="controllers: only this load (deployments, jobs, services, namespace); may be given several times")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="controllers: the part of each load's objects that there are (default: 1)")
    arguments = parser.parse_args()
    names = arguments.names or PARTS
    unknown = set(names) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    table, began = Table(), time.monotonic()
    if set(names) - {"api", "controllers", "kubectl", "schedule"}:
        images.ensure()
        for side in ("ferry", "upstream"):
            Side(side, names, table).measure()
            print(f"{side}: {(time.monotonic() - began) / 60:.1f} min", file=sys.stderr)
    if "schedule" in names:
        options = [f"--workload={part}" for part in arguments.workload]
        schedule(table, options + ([f"--nodes={arguments.nodes}"] if arguments.nodes else []))
    if "controllers" in names:
        controllers(table, [*(f"--load={name}" for name in arguments.load), f"--scale={arguments.scale}"])
    if "api" in names:
        api(table)
    if "kubectl" in names:
        command_line.measure(table)
    print(table.text())
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes on {os.cpu_count()} cores", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except Untrusted as reason:
        sys.exit(f"bench/run: {reason}. No table.")
