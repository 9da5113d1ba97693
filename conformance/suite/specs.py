"""The suite's tests: which there are, which of them to run, and what ginkgo says about each as it goes."""

import fcntl
import json
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import asdict, dataclass

from .places import CACHE, Untrusted

RULE = "-" * 30
# Lines of one test that are looked at.
LONGEST = 100_000
ENDED = re.compile(r"^(?:• |S )?\[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED|SKIPPED)\] \[([\d.]+) seconds\]$|^• \[([\d.]+) seconds\]$")
# ginkgo puts the labels behind the name and, where a test fails, the kind of node that failed into it.
NODE = re.compile(r" \[(?:It|(?:Just)?(?:Before|After)Each|DeferCleanup \(Each\))\](?= )")
LABELS = re.compile(r" \[[^\]]*\]$")
FAILURE = re.compile(r"^\s*\[(?:FAILED|PANICKED|TIMEDOUT|INTERRUPTED)\] (?!in \[|\[)(.+)$")


@dataclass
class Result:
    """What became of one test."""

    name: str
    passed: bool
    seconds: float
    error: str
    commit: str


def sig(name):
    """The group that a test belongs to."""
    found = re.match(r"\[sig-([a-z-]+)\]", name)
    return found.group(1) if found else "none"


def serial(name):
    return "[Serial]" in name


def conformance(e2e):
    """The names of all conformance tests, told by the suite itself."""
    return listed(e2e, "names", r"\[Conformance\]")


def everything(e2e):
    """The names of all tests of upstream, conformance or not."""
    return listed(e2e, "all-names", "")


def listed(e2e, ending, focus):
    """The names of the tests that ginkgo's focus chooses, asked once and kept."""
    kept = CACHE / "conformance" / f"{e2e.name}.{ending}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Several runs may ask at once: the first one does, the others wait and read.
    with open(kept.with_name(f"{kept.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists() and kept.stat().st_mtime > e2e.stat().st_mtime:
            return kept.read_text().splitlines()
        report = kept.with_name(f"{kept.name}.json")
        subprocess.run([e2e, "--ginkgo.dry-run", "--ginkgo.no-color", f"--ginkgo.focus={focus}",
                        f"--ginkgo.json-report={report}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        specs = json.loads(report.read_text())[0]["SpecReports"]
        chosen = [spec for spec in specs if spec["LeafNodeType"] == "It" and spec["State"] != "skipped"]
        names = sorted(" ".join([*spec["ContainerHierarchyTexts"], spec["LeafNodeText"]]) for spec in chosen)
        report.unlink()
        kept.write_text("\n".join(names) + "\n")
        return names


def choose(names, focus, skip, group):
    """The tests that the caller asked for."""
    chosen = [name for name in names if re.search(focus, name) and not (skip and re.search(skip, name))]
    chosen = [name for name in chosen if not group or sig(name) == group]
    if not chosen:
        raise Untrusted("no test is chosen by --focus, --skip and --sig")
    return chosen


def read(block, known):
    """The test that a block of ginkgo's output tells the end of: name, passed, seconds, first error line."""
    end = next((found for line in block if (found := ENDED.match(line))), None)
    name = next((bare for line in block if (bare := NODE.sub("", LABELS.sub("", line))) in known), None)
    if not end or not name:
        return None
    errors = [found.group(1).strip() for line in block if (found := FAILURE.match(line))]
    passed = end.group(3) is not None
    error = "" if passed else (errors[0] if errors else end.group(1).lower())
    return name, passed, float(end.group(2) or end.group(3)), error


class Phase:
    """One run of ginkgo over some tests; every test that ends is handed on at once."""

    def __init__(self, command, log, known, ended):
        self.command, self.log, self.known, self.ended = command, log, set(known), ended
        self.last = time.monotonic()

    def run(self, trouble, patience):
        """Runs to the end, or until `trouble` names a reason to stop; ends ginkgo and its children in any case.

        Some tests wait for ever: returns false when none has ended for so many seconds.
        """
        with open(self.log, "wb") as output:
            child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                     start_new_session=True)
        reader = threading.Thread(target=self.follow, args=(child,))
        reader.start()
        try:
            while child.poll() is None:
                reason = trouble()
                if reason:
                    raise Untrusted(reason)
                if time.monotonic() - self.last > patience:
                    return False
                time.sleep(1)
            return True
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            reader.join()

    def follow(self, child):
        """Reads the log as it grows, a block at a time."""
        rest, block = b"", []
        with open(self.log, "rb") as log:
            while True:
                over = child.poll() is not None
                rest += log.read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    block = self.line(block, line.decode(errors="replace").rstrip())
                if over and not lines:
                    return
                time.sleep(0.2)

    def line(self, block, line):
        if line != RULE:
            if len(block) < LONGEST:
                block.append(line)
            return block
        self.tell(block)
        return []

    def tell(self, block):
        found = read(block, self.known)
        if found:
            self.last = time.monotonic()
            self.ended(*found)


def keep(file, result):
    """Adds a result to those of a run."""
    with open(file, "a") as output:
        output.write(json.dumps(asdict(result)) + "\n")


def kept(file):
    """The results of a run, the last one of each test."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {result.name: result for result in (Result(**json.loads(line)) for line in lines)}
