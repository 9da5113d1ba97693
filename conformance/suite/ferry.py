"""A cluster of Ferry: the shipped binary, brought up as a user brings it up."""

import subprocess
import time
from pathlib import Path

from . import images, layout, places
from .machine import processes_with, run, wait


class Ferry:
    """`ferry up`, with the suite's images in its own mirror and runtime."""

    name = "ferry"

    def __init__(self, network, directory):
        self.network, self.data = network, directory / "d"
        self.kubeconfig = directory / "kubeconfig"
        self.seconds = None
        self.logs = [self.data / "ferry.log", self.data / "containerd" / "containerd.log"]

    def start(self):
        self.data.parent.mkdir(parents=True)
        began = time.monotonic()
        run(self.network.inside([places.ferry(), "up", "--install-runtime", "--data-dir", self.data,
                                 "--kubeconfig", self.kubeconfig, "--node-name", "node-1"]))
        self.seconds = time.monotonic() - began
        serve(self.data / "images")
        load("ctr", self.data / "containerd" / "containerd.sock")

    def dead(self):
        """What has ended that must run."""
        pid = (self.data / "ferry.pid").read_text().split()[0] if (self.data / "ferry.pid").exists() else "gone"
        return [] if Path(f"/proc/{pid}").exists() else ["ferry"]

    def control_plane(self):
        """The processes of the control plane; the kubelet is one with it."""
        return [int((self.data / "ferry.pid").read_text().split()[0])]

    def whole(self):
        """The processes of the control plane and the node's."""
        return self.control_plane() + processes_with(f"{self.data}/containerd/config.toml")

    def stop(self):
        if not self.data.exists():
            return  # It was refused before it began.
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
