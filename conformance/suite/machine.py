"""The machine that a cluster runs on: a network namespace with an uplink that leads nowhere, and processes in it."""

import os
import signal
import subprocess
import time
from pathlib import Path

from .places import Untrusted

# The address of a cluster's first host on the network of the hosts; the others follow.
UPLINK = "192.0.2.2"
CGROUPS = Path("/sys/fs/cgroup")


class Network:
    """The network namespaces of a cluster's hosts, one each, gone at the end. Their uplinks lead to each other only."""

    def __init__(self, name, hosts=1):
        self.name = name
        self.others = [Network(f"{name}-{number}") for number in range(2, hosts + 1)]

    def __enter__(self):
        if os.geteuid():
            raise Untrusted("a cluster needs root")
        self.create(UPLINK)
        head, _, last = UPLINK.rpartition(".")
        for number, host in enumerate(self.others, 1):
            host.create(f"{head}.{int(last) + number}")
            port = f"to{number}"
            run(self.inside(["ip", "link", "add", port, "type", "veth", "peer", "name", port, "netns", host.name]))
            for one in (self, host):
                run(one.inside(["ip", "link", "set", port, "master", "up0", "up"]))
        return self

    def create(self, address):
        run(["ip", "netns", "add", self.name])
        for line in ("link set lo up", "link add up0 type bridge", f"addr add {address}/24 dev up0", "link set up0 up",
                     # Without a default route nothing knows which address is the node's; this one leads nowhere.
                     "route add default via 192.0.2.1"):
            run(self.inside(["ip", *line.split()]))

    def __exit__(self, *_):
        for host in (self, *self.others):
            subprocess.run(["ip", "netns", "delete", host.name])

    def inside(self, command):
        """The command, in the namespace."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *map(str, command)]


class Process:
    """A program that runs until it is stopped; its output goes to a file."""

    def __init__(self, network, command, log, environment=None):
        self.name, self.log = Path(command[0]).name, log
        with open(log, "ab") as output:
            self.child = subprocess.Popen(
                network.inside(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **(environment or {})}, start_new_session=True,
            )
        self.pid = self.child.pid

    def alive(self):
        return self.child.poll() is None

    def stop(self, patience=5):
        """Asks it to end, and ends it."""
        if self.alive():
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(patience)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def run(command, **more):
    """Runs a command; what fails is told with its output."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        raise Untrusted(f"`{' '.join(map(str, command))[:200]}` failed: {done.stdout.strip()[-1500:]}")
    return done.stdout


def wait(what, seconds, condition, interval=0.1):
    """Waits until the condition holds; whatever it answers then."""
    deadline, last = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            found = condition()
            if found:
                return found
        except (OSError, Untrusted, ValueError, KeyError, IndexError) as error:
            last = error
        time.sleep(interval)
    raise Untrusted(f"{what} did not come in {seconds} s" + (f": {last}" if last else ""))


def end_control_group(name):
    """Ends whatever runs in a control group, in every hierarchy, and removes it."""
    roots = [root / name for root in CGROUPS.iterdir() if (root / name).is_dir()] if CGROUPS.is_dir() else []
    for _ in range(50):
        pids = {int(pid) for root in roots for file in root.rglob("cgroup.procs") for pid in lines(file)}
        for pid in pids - {0}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not pids:
            break
        time.sleep(0.1)
    for root in roots:
        for directory in sorted([root, *root.rglob("*/")], key=lambda path: -len(path.parts)):
            try:
                directory.rmdir()
            except OSError:
                pass


def lines(file):
    try:
        return file.read_text().split()
    except OSError:
        return []


def unmount_under(directory):
    """Unmounts whatever is mounted under a directory, the deepest first."""
    mounted = [line.split()[1].replace("\\040", " ") for line in open("/proc/mounts")]
    for point in sorted((point for point in mounted if point.startswith(f"{directory}/")), key=len, reverse=True):
        subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL)


def processes_with(text):
    """The processes whose command line holds the text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found
