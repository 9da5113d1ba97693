"""The part `kubectl` of `bench/run`: both kubectls with the same command lines against one API server of Ferry.

What counts is the client's own: wall time, CPU time and peak memory of the process.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from suite import places
from suite.machine import wait
from suite.pki import Pki
from suite.places import Untrusted

RUNS = 9
PORT = 16543
POD = """{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "pod-{0}", "labels": {{"app": "bench"}}}},
"spec": {{"containers": [{{"name": "main", "image": "nginx", "ports": [{{"containerPort": 80}}]}}]}}}}"""


def measure(table):
    """Adds a row per command line and measure."""
    scratch = Path(tempfile.mkdtemp(prefix="ferry-bench-kubectl-"))
    link = scratch / "bin" / "kubectl"
    link.parent.mkdir()
    link.symlink_to(places.ferry())
    programs = {"ferry": link, "upstream": places.programs("kubectl")["kubectl"]}
    pki = Pki(scratch / "pki", f"https://127.0.0.1:{PORT}", "IP:127.0.0.1,DNS:localhost")
    kubeconfig = pki.kubeconfig("admin", scratch / "kubeconfig")
    log = (scratch / "log").open("w")
    server = subprocess.Popen(list(map(str, [
        places.ferry(), "kube-apiserver", "--data-dir", scratch / "data", "--bind-address", "127.0.0.1", "--secure-port", PORT,
        "--client-ca-file", pki.crt("ca"), "--tls-cert-file", pki.crt("server"), "--tls-private-key-file", pki.key("server"),
        "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", pki.key("tokens"),
        "--service-account-key-file", pki.crt("tokens"), "--service-cluster-ip-range", "10.96.0.0/16",
    ])), stdout=log, stderr=log)
    try:
        bench = Bench(programs, kubeconfig, scratch, table)
        wait("the API server", 60, lambda: bench.once("upstream", ["get", "--raw", "/readyz"]).code == 0)
        bench.prepare()
        bench.compare()
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(scratch, ignore_errors=True)


class Usage:
    """What one process took."""

    def __init__(self, code, wall, usage):
        self.code, self.wall = code, wall * 1000
        self.cpu = (usage.ru_utime + usage.ru_stime) * 1000
        self.memory = usage.ru_maxrss / 1024


class Bench:
    """Both programs, and the API server that they talk to."""

    def __init__(self, programs, kubeconfig, scratch, table):
        self.programs, self.kubeconfig, self.scratch, self.table = programs, kubeconfig, scratch, table

    def once(self, side, arguments, cold=False):
        cache = self.scratch / f"cache-{side}"
        if cold:
            shutil.rmtree(cache, ignore_errors=True)
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(cache),
                       "HOME": str(self.scratch)}
        began = time.monotonic()
        child = subprocess.Popen([str(self.programs[side]), *map(str, arguments)], env=environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return Usage(child.returncode, time.monotonic() - began, usage)

    def prepare(self):
        for namespace, count in (("small", 100), ("large", 5000)):
            manifest = self.scratch / f"{namespace}.json"
            manifest.write_text("\n---\n".join(POD.format(number) for number in range(count)))
            for arguments in (["create", "namespace", namespace], ["create", "serviceaccount", "default", "-n", namespace],
                              ["create", "-n", namespace, "--validate=false", "-f", manifest]):
                if self.once("ferry", arguments).code:
                    raise Untrusted(f"kubectl {' '.join(map(str, arguments))} failed")
        directory = self.scratch / "manifests"
        directory.mkdir()
        for number in range(200):
            text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}}}\ndata: {{number: '{number}'}}\n"
            (directory / f"{number}.yaml").write_text(text)

    def compare(self):
        self.row("version --client", ["version", "--client"])
        self.row("get pods (100), cold cache", ["get", "pods", "-n", "small"], cold=True)
        self.row("get pods (100)", ["get", "pods", "-n", "small"])
        self.row("get pods (5,000)", ["get", "pods", "-n", "large"])
        self.row("get pods (5,000) as JSON", ["get", "pods", "-n", "large", "-o", "json"])
        self.row("describe pod", ["describe", "pod", "pod-1", "-n", "small"])
        self.row("apply of 200 manifests", ["apply", "-n", "small", "-f", self.scratch / "manifests"], runs=3)

    def row(self, name, arguments, cold=False, runs=RUNS):
        for side in self.programs:
            # The first run fills caches.
            if not cold:
                self.once(side, arguments)
            used = [self.once(side, arguments, cold) for _ in range(runs)]
            if any(one.code for one in used):
                raise Untrusted(f"{side}: kubectl {' '.join(map(str, arguments))} failed")
            self.table.add(f"kubectl {name}", "ms", side, [one.wall for one in used])
            self.table.add(f"kubectl {name}: CPU", "ms", side, [one.cpu for one in used])
            self.table.add(f"kubectl {name}: memory", "MB", side, [one.memory for one in used])
