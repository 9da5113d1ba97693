"""Proof that a cluster can be scored: its node is Ready and runs a pulled image that answers. Otherwise nothing is run.

What the cluster lacks without being broken (DNS, services, tokens) is named beside the score.
"""

import json
import urllib.error

from .machine import Untrusted, run, wait

IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
NAMESPACE = "conformance-preflight"
# How long a node may take, in seconds.
NODE = 120
# Always pulled, so that the registry is proven too.
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proof", "labels": {"app": "proof"}},
    "spec": {"containers": [{"name": "proof", "image": IMAGE, "imagePullPolicy": "Always", "args": ["netexec"]}],
             "terminationGracePeriodSeconds": 0},
}
SERVICE = {
    "apiVersion": "v1", "kind": "Service", "metadata": {"name": "proof"},
    "spec": {"selector": {"app": "proof"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


class Client:
    """kubectl in the cluster's network."""

    def __init__(self, network, kubectl, kubeconfig):
        self.network, self.kubectl, self.kubeconfig = network, kubectl, kubeconfig

    def __call__(self, *arguments):
        return run(self.network.inside([self.kubectl, "--kubeconfig", self.kubeconfig, *arguments]))

    def get(self, *arguments):
        return json.loads(self("get", *arguments, "-o", "json"))

    def create(self, value, directory):
        file = directory / f"{value['kind'].lower()}.json"
        file.write_text(json.dumps(value))
        self("create", "--namespace", NAMESPACE, "-f", file)

    def http(self, address):
        return run(self.network.inside(["curl", "--silent", "--show-error", "--max-time", "3", f"http://{address}/"]))


def node_ready(client):
    """The version that a Ready node tells."""
    nodes = client.get("nodes")["items"]
    ready = lambda node: any(condition["type"] == "Ready" and condition["status"] == "True"
                             for condition in node["status"].get("conditions", []))
    return nodes and all(map(ready, nodes)) and nodes[0]["status"]["nodeInfo"]["kubeletVersion"]


def check(client, directory):
    """Returns what the cluster lacks."""
    wait("a Ready node", NODE, lambda: node_ready(client))
    client("create", "namespace", NAMESPACE)
    wait("the namespace's service account", 60,
         lambda: client.get("serviceaccounts", "default", "--namespace", NAMESPACE))
    client.create(POD, directory)
    pod = wait("a running pod", 120, lambda: running(client))
    answer = wait("the pod's answer", 30, lambda: client.http(f"{pod['status']['podIP']}:8080"))
    if "NOW" not in answer:
        raise Untrusted(f"the pod answers {answer!r}")
    lacking = missing(client, directory, pod)
    client("delete", "namespace", NAMESPACE, "--wait=false")
    return lacking


def running(client):
    pod = client.get("pod", "proof", "--namespace", NAMESPACE)
    return pod if pod["status"].get("phase") == "Running" and pod["status"].get("podIP") else None


def missing(client, directory, pod):
    """The parts of a cluster that do not work, by name."""
    lacking = []
    client.create(SERVICE, directory)
    address = client.get("service", "proof", "--namespace", NAMESPACE)["spec"]["clusterIP"]
    if not tried(5, lambda: client.http(address)):
        lacking.append("services")
    if not tried(60 if "services" not in lacking else 1, lambda: resolves(client)):
        lacking.append("DNS")
    if not any("projected" in volume for volume in pod["spec"].get("volumes", [])):
        lacking.append("service account tokens in pods")
    return lacking


def resolves(client):
    command = ["nslookup", "-timeout=2", "kubernetes.default.svc.cluster.local"]
    return client("exec", "--namespace", NAMESPACE, "proof", "--", *command)


def tried(seconds, attempt):
    try:
        return wait("it", seconds, attempt, interval=0.5)
    except (Untrusted, urllib.error.URLError):
        return None
