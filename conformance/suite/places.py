"""Where things are: the repository, the user's cache, and the programs that are built into it."""

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CONFORMANCE = REPOSITORY / "conformance"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ferry"
RUNS = CACHE / "conformance" / "runs"


class Untrusted(Exception):
    """Why a run cannot be trusted: it stops, and nothing is scored."""


def target():
    """Where cargo builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")


def ferry():
    """The shipped binary."""
    path = target() / "release" / "ferry"
    if not path.is_file():
        raise Untrusted(f"{path} is not built")
    return path


def table(name):
    """The rows of a text table here: words per line, comments left out."""
    lines = (CONFORMANCE / name).read_text().splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def programs(*names):
    """The paths of programs of `programs.txt`, built where they are not there yet."""
    xtask = [target() / "debug" / "xtask", "upstream", *names]
    done = subprocess.run(xtask, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    paths = [Path(line) for line in done.stdout.splitlines() if line.startswith("/")]
    if done.returncode or len(paths) != len(names):
        raise Untrusted(f"cannot build {', '.join(names)} from their Go modules")
    return dict(zip(names, paths))


def kubernetes_sources():
    """The directory of the Kubernetes module, which has the sources of its test images."""
    listed = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"],
        cwd=CONFORMANCE, stdout=subprocess.PIPE, text=True, check=True,
    )
    return Path(listed.stdout.strip())
