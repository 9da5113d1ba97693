"""A cluster of upstream's components: what the same machine gives to Kubernetes itself."""

import json
import os
import sys
import time

from . import places
from .ferry import load, serve
from .machine import CGROUPS, UPLINK, Process, end_control_group, processes_with, run, unmount_under, wait
from .pki import Pki

PROGRAMS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
            "containerd", "containerd-shim-runc-v2", "ctr", "kubectl"]
CONTROL_PLANE = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
SERVICES, PODS, DNS = "10.96.0.0/16", "10.42.0.0/24", "10.96.0.10"
NAMES = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost," \
        "DNS:kubernetes.default.svc.cluster.local," \
        f"IP:10.96.0.1,IP:127.0.0.1,IP:{UPLINK}"
SERVER = f"https://{UPLINK}:6443"
REGISTRY = 5000


class Upstream:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd, kubelet, kube-proxy and CoreDNS."""

    name = "upstream"

    def __init__(self, network, directory, dns=True):
        self.network, self.directory, self.dns = network, directory, dns
        self.group = f"conformance-{os.getpid()}"
        self.kubeconfig = directory / "kubeconfig"
        self.socket = directory / "containerd.sock"
        self.programs, self.processes, self.logs = {}, {}, []
        self.seconds = None

    def start(self):
        self.prepare()
        began = time.monotonic()
        self.launch()
        self.seconds = time.monotonic() - began
        load(self.programs["ctr"], self.socket)
        if self.dns:
            self.kubectl("apply", "-f", places.CONFORMANCE / "dns.yaml")

    def prepare(self):
        """Everything that is there before the first process starts."""
        (self.directory / "bin").mkdir(parents=True)
        for name, path in places.programs(*PROGRAMS).items():
            self.programs[name] = self.directory / "bin" / name
            self.programs[name].symlink_to(path)
        self.pki = Pki(self.directory / "pki", SERVER, NAMES)
        self.pki.kubeconfig("admin", self.kubeconfig)
        for name in CLIENT_COMPONENTS:
            self.pki.kubeconfig(name, self.directory / f"{name}.kubeconfig")
        self.prepare_control_group()
        self.prepare_runtime()
        write(self.directory / "kubelet.json", kubelet_config(self.directory, self.pki, self.group))
        write(self.directory / "kube-proxy.json", proxy_config(self.directory))
        inside = lambda text: run(self.network.inside(["sh", "-c", text]))
        inside("echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables")
        serve(self.directory / "images")
        self.run("registry", self.directory / "images", REGISTRY, program=[sys.executable, "-m", "suite.registry"],
                 environment={"PYTHONPATH": str(places.CONFORMANCE)})

    def launch(self):
        """Starts the components; returns when the node is Ready."""
        at = self.directory
        self.run("etcd", *etcd_flags(at))
        self.run("kube-apiserver", *server_flags(self.pki))
        self.run("containerd", "--config", at / "containerd.toml",
                 environment={"PATH": f"{at}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"})
        self.wait("kube-apiserver's /readyz", 120, lambda: "ok" in self.kubectl("get", "--raw", "/readyz"))
        self.run("kube-controller-manager", *controller_flags(at, self.pki))
        self.run("kube-scheduler", f"--kubeconfig={at}/kube-scheduler.kubeconfig", "--leader-elect=false")
        self.run("kubelet", f"--config={at}/kubelet.json", f"--kubeconfig={at}/kubelet.kubeconfig",
                 f"--root-dir={at}/kubelet", "--hostname-override=node-1", f"--node-ip={UPLINK}")
        self.run("kube-proxy", f"--config={at}/kube-proxy.json")
        ready = ["get", "node", "node-1", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"]
        self.wait("a Ready node", 120, lambda: self.kubectl(*ready) == "True")

    def prepare_runtime(self):
        certs, cni = self.directory / "certs.d" / "_default", self.directory / "cni"
        certs.mkdir(parents=True)
        cni.mkdir()
        (certs / "hosts.toml").write_text(
            f'[host."http://127.0.0.1:{REGISTRY}"]\n  capabilities = ["pull", "resolve"]\n')
        write(cni / "10-bridge.conflist", network_config(self.directory))
        (self.directory / "containerd.toml").write_text(containerd_config(self.directory, self.socket))

    def prepare_control_group(self):
        for root in CGROUPS.iterdir():
            if (root / "cgroup.procs").exists():
                (root / self.group).mkdir(exist_ok=True)
                for name in ("cpuset.cpus", "cpuset.mems"):
                    if (root / name).exists():
                        (root / self.group / name).write_text((root / name).read_text())

    def run(self, name, *arguments, program=None, environment=None):
        log = self.directory / f"{name}.log"
        command = [*(program or [self.programs[name]]), *arguments]
        self.processes[name] = Process(self.network, command, log, environment)
        self.logs.append(log)

    def wait(self, what, seconds, condition):
        """Waits for something as long as all that was started runs."""
        wait(what, seconds, lambda: self.dead() or condition())
        for name in self.dead():
            said = (self.directory / f"{name}.log").read_text(errors="replace").strip()
            raise places.Untrusted(f"{name} ended while {what} was waited for: {said[-500:]}")

    def kubectl(self, *arguments):
        return run(self.network.inside([self.programs["kubectl"], "--kubeconfig", self.kubeconfig, *arguments]))

    def dead(self):
        """What has ended that must run."""
        return [name for name, process in self.processes.items() if not process.alive()]

    def control_plane(self):
        """The processes of the control plane."""
        return [self.processes[name].pid for name in CONTROL_PLANE]

    def whole(self):
        """The processes of the control plane and the node's."""
        return [process.pid for name, process in self.processes.items() if name != "registry"]

    def stop(self):
        for name in ("kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager"):
            if name in self.processes:
                self.processes[name].stop()
        end_control_group(self.group)
        for pid in processes_with(f"-address {self.socket}"):
            os.kill(pid, 9)
        for name in ("kube-apiserver", "etcd", "containerd", "registry"):
            if name in self.processes:
                self.processes[name].stop(patience=1)
        unmount_under(self.directory)


def write(path, value):
    path.write_text(json.dumps(value))


CLIENT_COMPONENTS = ["kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"]


def etcd_flags(directory):
    clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [f"--data-dir={directory}/etcd", f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}"]


def server_flags(pki):
    return [
        "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443", f"--advertise-address={UPLINK}",
        f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
        "--enable-admission-plugins=NodeRestriction", f"--client-ca-file={pki.crt('ca')}",
        f"--tls-cert-file={pki.crt('server')}", f"--tls-private-key-file={pki.key('server')}",
        f"--kubelet-client-certificate={pki.crt('kubelet-client')}",
        f"--kubelet-client-key={pki.key('kubelet-client')}", "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki.crt('tokens')}", f"--service-account-signing-key-file={pki.key('tokens')}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--proxy-client-cert-file={pki.crt('front-proxy')}", f"--proxy-client-key-file={pki.key('front-proxy')}",
        f"--requestheader-client-ca-file={pki.crt('front-proxy-ca')}",
        "--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


def controller_flags(directory, pki):
    kubeconfig = f"{directory}/kube-controller-manager.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}", "--leader-elect=false", "--use-service-account-credentials=true",
        f"--cluster-signing-cert-file={pki.crt('ca')}", f"--cluster-signing-key-file={pki.key('ca')}",
        f"--root-ca-file={pki.crt('ca')}", f"--service-account-private-key-file={pki.key('tokens')}",
        "--controllers=*,bootstrap-signer-controller,token-cleaner-controller", f"--cluster-cidr={PODS}",
    ]


def kubelet_config(directory, pki, group):
    (directory / "resolv.conf").write_text("")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": str(pki.crt("ca"))}, "webhook": {"enabled": True},
                           "anonymous": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs", "failCgroupV1": False, "cgroupRoot": f"/{group}",
        "clusterDNS": [DNS], "clusterDomain": "cluster.local", "resolvConf": f"{directory}/resolv.conf",
        "containerRuntimeEndpoint": f"unix://{directory}/containerd.sock",
        "podLogsDir": f"{directory}/pod-logs", "volumePluginDir": f"{directory}/volume-plugins", "failSwapOn": False,
        # What else fills this machine's disk is not the cluster's concern.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
    }


def proxy_config(directory):
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
        "clientConnection": {"kubeconfig": f"{directory}/kube-proxy.kubeconfig"}, "hostnameOverride": "node-1",
        "clusterCIDR": PODS, "nodePortAddresses": None,
        # The limits of connection tracking are the machine's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def network_config(directory):
    ipam = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": f"{directory}/ipam"}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}


def containerd_config(directory, socket):
    return f"""version = 3
root = "{directory}/containerd/root"
state = "{directory}/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs"]
[grpc]
address = "{socket}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "registry.k8s.io/pause:3.10.2"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{directory}/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{directory}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
Root = "{directory}/containerd/runc"
"""
