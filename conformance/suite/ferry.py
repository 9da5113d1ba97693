"""A cluster of Ferry: the shipped binary, brought up as a user brings it up."""

import subprocess
import time
from pathlib import Path

from . import images, layout, places
from .machine import processes_with, run, wait


class Ferry:
    """`ferry up`, and `ferry join` for the other nodes, with the suite's images in their own mirrors and runtimes."""

    name = "ferry"

    def __init__(self, network, directory, runtime="containerd"):
        hosts = (network, *network.others)
        self.nodes = [Node(host, directory / f"d{number}", f"node-{number}", runtime)
                      for number, host in enumerate(hosts, 1)]
        self.network, self.directory, self.kubeconfig = network, directory, directory / "kubeconfig"
        self.seconds = None
        self.logs = [log for node in self.nodes for log in node.logs]

    def start(self):
        self.directory.mkdir(parents=True)
        first, *others = self.nodes
        began = time.monotonic()
        first.start(["up", "--kubeconfig", self.kubeconfig])
        self.seconds = time.monotonic() - began
        for node in others:
            # It prints the command line to type on the other host.
            told = run(first.network.inside([places.ferry(), "token", "create", "--data-dir", first.data]))
            node.start(told.split()[1:])
        for node in self.nodes:
            node.load_images()

    def dead(self):
        """The programs that must run and have ended."""
        return [f"ferry on {node.name}" for node in self.nodes if not node.alive()]

    def control_plane(self):
        """The processes of the control plane; the kubelet is one with it."""
        return [self.nodes[0].pid()]

    def whole(self):
        """The processes of the control plane and of the nodes."""
        return [pid for node in self.nodes
                for pid in [node.pid(), *processes_with(f"{node.data}/containerd/config.toml")]]

    def stop(self):
        for node in reversed(self.nodes):
            node.stop()


class Node:
    """A host with the shipped binary."""

    def __init__(self, network, data, name, runtime):
        self.network, self.data, self.name, self.runtime = network, data, name, runtime
        self.logs = [data / "ferry.log", data / "containerd" / "containerd.log"]

    def start(self, arguments):
        runtime = "--container-runtime=ferry" if self.runtime == "ferry" else "--install-runtime"
        run(self.network.inside([places.ferry(), *arguments, runtime, "--data-dir", self.data, "--node-name", self.name]))

    def load_images(self):
        serve(self.data / "images")
        # Ferry's own runtime pulls from the mirror.
        if self.runtime != "ferry":
            load("ctr", self.data / "containerd" / "containerd.sock")

    def pid(self):
        return int((self.data / "ferry.pid").read_text().split()[0])

    def alive(self):
        return (self.data / "ferry.pid").exists() and Path(f"/proc/{self.pid()}").exists()

    def stop(self):
        if self.data.exists():  # Otherwise it was refused before it began.
            run(self.network.inside([places.ferry(), "down", "--purge", "--data-dir", self.data]))


def serve(directory):
    """Puts the images where the cluster's mirror serves them, by links."""
    for path in images.IMAGES.rglob("*"):
        if path.is_file():
            copy = directory / path.relative_to(images.IMAGES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            layout.link_or_copy(path, copy)


def load(ctr, socket):
    """Puts the images into a containerd."""
    wait("containerd's socket", 30, socket.exists)
    command = [ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", "-"]
    child = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    try:
        layout.archive(images.IMAGES, child.stdin)
    except BrokenPipeError:
        pass  # It has ended, and says below why.
    told = child.communicate()[0].decode(errors="replace")
    if child.returncode:
        raise places.Untrusted(f"images cannot be loaded into containerd: {told[-1500:]}")
