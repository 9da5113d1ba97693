"""`conformance/run`: brings a cluster up, proves it, runs the chosen tests against it, and tells the score."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from . import images, places, preflight, score, specs
from .ferry import Ferry
from .machine import Network
from .places import REPOSITORY, RUNS, Untrusted
from .upstream import Upstream


def arguments():
    parser = argparse.ArgumentParser(prog="conformance/run", description=__doc__)
    parser.add_argument("--focus", default="", metavar="REGEX", help="only tests whose names match")
    parser.add_argument("--skip", default="", metavar="REGEX", help="no tests whose names match")
    parser.add_argument("--sig", default="", metavar="NAME", help="only tests of this group, such as api-machinery")
    parser.add_argument("--all", action="store_true",
                        help="choose from all tests of upstream, not from the conformance tests alone")
    parser.add_argument("--parallel", type=int, default=8, metavar="N", help="tests at once (default 8)")
    parser.add_argument("--patience", type=int, default=30, metavar="MINUTES",
                        help="how long to wait for the end of any test before those that run count as failed (default 30)")
    parser.add_argument("--upstream", action="store_true", help="against upstream's components instead of Ferry")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of a cluster of Ferry (default 1)")
    parser.add_argument("--runtime", choices=["containerd", "ferry"], default="containerd",
                        help="the container runtime of a cluster of Ferry: containerd (default) or its own")
    parser.add_argument("--kubectl", choices=["upstream", "ours"], default="upstream",
                        help="the kubectl that the tests call: upstream's (default) or the shipped binary's")
    parser.add_argument("--resume", action="store_true", help="continue the last run: only tests without a result")
    parser.add_argument("--failed", action="store_true", help="with --resume: also those that failed, once more")
    parser.add_argument("--record", action="store_true", help="add the score to conformance/results.md")
    parser.add_argument("--list", action="store_true", help="only print the names of the chosen tests")
    asked = parser.parse_args()
    if asked.upstream and (asked.nodes != 1 or asked.runtime != "containerd"):
        parser.error("--nodes and --runtime are for clusters of Ferry")
    return asked


def main():
    asked = arguments()
    programs = places.programs("e2e.test", "ginkgo", "kubectl")
    names = (specs.everything if asked.all else specs.conformance)(programs["e2e.test"])
    chosen = specs.choose(names, asked.focus, asked.skip, asked.sig)
    if asked.list:
        print("\n".join(chosen))
        return 0
    run = Run(asked, programs, folder(asked))
    if asked.kubectl == "ours":
        # The shipped binary is kubectl under that name.
        link = run.folder / "kubectl"
        link.unlink(missing_ok=True)
        link.symlink_to(places.ferry())
        programs["kubectl"] = link
    results = specs.kept(run.results) if asked.resume else {}
    settled = {name for name, result in results.items() if result.passed or not asked.failed}
    missing = [name for name in chosen if name not in settled]
    print(f"{len(missing)} of {len(chosen)} tests to run; everything about them is kept in {run.folder}")
    try:
        if missing:
            run.cluster(missing)
    except KeyboardInterrupt:
        print("stopped; continue with --resume", file=sys.stderr)
    results = specs.kept(run.results)
    lacking = run.lacking.read_text().split(", ") if run.lacking.exists() and run.lacking.read_text() else []
    told = score.text(chosen, results, lacking)
    (run.folder / "score.txt").write_text(told + "\n")
    print(f"\n{told}")
    if asked.record:
        score.record(run.kind, chosen, results)
    return 0 if all(name in results and results[name].passed for name in chosen) else 1


def folder(asked):
    """A new folder for the run, or the last one of the same kind of cluster."""
    kind = cluster_kind(asked)
    before = sorted(RUNS.glob(f"{kind}-" + "[0-9]" * 8 + "-*"))
    if asked.resume and before:
        return before[-1]
    made = RUNS / f"{kind}-{datetime.now():%Y%m%d-%H%M%S}"
    made.mkdir(parents=True)
    return made


def cluster_kind(asked):
    """The name of the kind of cluster in scores and folders."""
    if asked.upstream:
        return "upstream"
    runtime = "-own-runtime" if asked.runtime == "ferry" else ""
    return f"ferry{runtime}" + (f"-{asked.nodes}-nodes" if asked.nodes > 1 else "")


class Run:
    """One run: where its results are and what it needs."""

    def __init__(self, asked, programs, directory):
        self.asked, self.programs, self.folder = asked, programs, directory
        self.kind = cluster_kind(asked)
        self.results, self.lacking = directory / "results.jsonl", directory / "lacking.txt"
        # Upstream's components are of the same version as the suite.
        self.commit = programs["e2e.test"].name.removeprefix("e2e.test-") if asked.upstream else commit()
        self.told = set()

    def cluster(self, missing):
        """Runs tests on a cluster that lives as long as this takes."""
        images.ensure()
        listed = subprocess.run([self.programs["e2e.test"], "--list-images"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=True).stdout
        images.check(line for line in listed.split() if "/" in line)
        # Short, because sockets under it have paths of at most 107 bytes.
        scratch = Path(tempfile.mkdtemp(prefix="fc", dir="/tmp"))
        part = next_part(self.folder)
        try:
            with Network(f"conformance-{os.getpid()}", self.asked.nodes) as network:
                directory = scratch / "c"
                cluster = (Upstream(network, directory) if self.asked.upstream
                           else Ferry(network, directory, self.asked.runtime))
                try:
                    cluster.start()
                    self.tests(network, cluster, missing, scratch, part)
                finally:
                    keep_logs(cluster, part)
                    cluster.stop()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def tests(self, network, cluster, missing, scratch, part):
        client = preflight.Client(network, self.programs["kubectl"], cluster.kubeconfig)
        lacking = preflight.check(client, scratch)
        self.lacking.write_text(", ".join(lacking))
        print(f"the cluster runs pods{' but lacks ' + ', '.join(lacking) if lacking else ''}", flush=True)
        self.total = len(missing)
        together = [name for name in missing if not specs.serial(name)]
        alone = [name for name in missing if specs.serial(name)]
        for phase, names, procs in (("parallel", together, self.asked.parallel), ("serial", alone, 1)):
            if names:
                command = self.ginkgo(network, cluster, scratch, part, phase, names, procs)
                ended = lambda *told: self.ended(cluster, *told)
                running = specs.Phase(command, part / f"{phase}.log", names, ended)
                if not running.run(lambda: trouble(cluster), self.asked.patience * 60):
                    self.endless([name for name in names if name not in self.told], procs)
        left = [name for name in missing if name not in self.told]
        if left:
            raise Untrusted(f"ginkgo ended without a result of {len(left)} tests, such as {left[0]}; its log is in {part}")

    def ginkgo(self, network, cluster, scratch, part, phase, names, procs):
        e2e = scratch / "e2e.test"
        if not e2e.exists():
            e2e.symlink_to(self.programs["e2e.test"])
        # Names alone are told to ginkgo: upstream's defaults hold for everything else.
        focus = "|".join(map(quote, names))
        # Tests that need several nodes ask how many there are.
        nodes = [f"--num-nodes={self.asked.nodes}"] if self.asked.nodes > 1 else []
        return network.inside([
            self.programs["ginkgo"], f"--procs={min(procs, len(names))}", "--no-color", "-v", "--timeout=24h",
            f"--focus=(?:{focus})$", f"--junit-report={phase}.xml", f"--output-dir={part}", e2e, "--",
            f"--kubeconfig={cluster.kubeconfig}", f"--kubectl-path={self.programs['kubectl']}", "--provider=skeleton",
            *nodes,
        ])

    def endless(self, names, procs):
        """Tests that were all under way and did not end are failures; of those that had to wait nothing is known."""
        if len(names) > procs:
            raise Untrusted(f"{len(names)} tests were left when none had ended for {self.asked.patience} minutes")
        for name in names:
            error = f"did not end: no test did for {self.asked.patience} minutes"
            self.keep(name, False, self.asked.patience * 60, error)

    def ended(self, cluster, name, passed, seconds, error):
        if not passed and cluster.dead():
            return  # It says nothing about the test.
        self.keep(name, passed, seconds, error)

    def keep(self, name, passed, seconds, error):
        specs.keep(self.results, specs.Result(name, passed, seconds, error, self.commit))
        self.told.add(name)
        # A conformance test that is skipped is not passed; others say so of what the cluster is not made for.
        outcome = "passed" if passed else "skipped" if error == "skipped" and self.asked.all else "FAILED"
        print(f"{len(self.told)}/{self.total} {outcome} {seconds:.0f}s {name}", flush=True)


def next_part(folder):
    """A new folder for what this part of a run writes; several parts may run at once, each with tests of its own."""
    number = 1
    while True:
        try:
            (folder / f"part-{number}").mkdir()
            return folder / f"part-{number}"
        except FileExistsError:
            number += 1


def quote(name):
    """A name as a regular expression of Go's kind."""
    return "".join("\\" + letter if letter in r"\.+*?()|[]{}^$" else letter for letter in name)


def trouble(cluster):
    """Why what comes now could not be trusted."""
    dead = cluster.dead()
    return f"{', '.join(dead)} ended in the middle of the run" if dead else None


def keep_logs(cluster, part):
    for number, log in enumerate(cluster.logs):
        if log.exists():
            # Nodes have logs of the same name.
            copy = part / log.name
            shutil.copy(log, copy if not copy.exists() else copy.with_stem(f"{log.stem}-{number}"))


def commit():
    """The commit that is tested, marked if the tree differs from it."""
    told = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=7"], cwd=REPOSITORY,
                          stdout=subprocess.PIPE, text=True)
    return told.stdout.strip() or "unknown"


def interrupted(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupted)
    try:
        sys.exit(main())
    except Untrusted as reason:
        sys.exit(f"conformance/run: {reason}. Nothing is scored.")
