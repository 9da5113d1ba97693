"""The Python client as scripts use it: objects, patches, server-side apply, a watch. Takes a kubeconfig."""

import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = "default"


def map_of(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"by": "python"}), data=data)


def refused(code, reason, call):
    try:
        call()
    except ApiException as error:
        assert error.status == code, error
        assert f'"reason":"{reason}"' in error.body, error.body
    else:
        raise AssertionError(f"expected {code} {reason}")


def objects(core):
    made = core.create_namespaced_config_map(NAMESPACE, map_of("p", a="1"))
    refused(409, "AlreadyExists", lambda: core.create_namespaced_config_map(NAMESPACE, map_of("p")))
    assert core.read_namespaced_config_map("p", NAMESPACE).metadata.uid == made.metadata.uid
    made.data["b"] = "2"
    changed = core.replace_namespaced_config_map("p", NAMESPACE, made)
    assert changed.data == {"a": "1", "b": "2"}
    refused(409, "Conflict", lambda: core.replace_namespaced_config_map("p", NAMESPACE, made))
    core.patch_namespaced_config_map("p", NAMESPACE, {"data": {"a": None}})
    listed = core.list_namespaced_config_map(NAMESPACE, label_selector="by=python")
    assert [(m.metadata.name, m.data) for m in listed.items] == [("p", {"b": "2"})], listed
    core.delete_namespaced_config_map("p", NAMESPACE)
    refused(404, "NotFound", lambda: core.read_namespaced_config_map("p", NAMESPACE))


def deployments(apps):
    labels = {"app": "p"}
    pod = client.V1PodSpec(containers=[client.V1Container(name="c", image="i")])
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=pod)
    spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template, replicas=2)
    made = apps.create_namespaced_deployment(NAMESPACE, client.V1Deployment(metadata={"name": "p"}, spec=spec))
    assert made.spec.strategy.type == "RollingUpdate", made
    apps.patch_namespaced_deployment_scale("p", NAMESPACE, {"spec": {"replicas": 4}})
    assert apps.read_namespaced_deployment("p", NAMESPACE).spec.replicas == 4
    made.spec.replicas = -1
    refused(422, "Invalid", lambda: apps.patch_namespaced_deployment("p", NAMESPACE, {"spec": {"replicas": -1}}))
    apps.delete_namespaced_deployment("p", NAMESPACE, propagation_policy="Background")


def watched(core):
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, map_of("w", n="1"))
    core.patch_namespaced_config_map("w", NAMESPACE, {"data": {"n": "2"}})
    core.delete_namespaced_config_map("w", NAMESPACE)
    told = []
    stream = watch.Watch()
    options = {"label_selector": "by=python", "resource_version": start, "timeout_seconds": 60}
    for event in stream.stream(core.list_namespaced_config_map, NAMESPACE, **options):
        told.append((event["type"], event["object"].data["n"]))
        if event["type"] == "DELETED":
            stream.stop()
    assert told == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")], told


def applied(api):
    """Through discovery, without types."""
    maps = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"k": "v"}}
    made = maps.server_side_apply(body=body, namespace=NAMESPACE, field_manager="python")
    assert made.data.k == "v" and made.metadata.managedFields[0].operation == "Apply", made
    maps.delete(name="d", namespace=NAMESPACE)


api = config.new_client_from_config(sys.argv[1])
core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
for name, check in [
    ("objects", lambda: objects(core)),
    ("deployments", lambda: deployments(apps)),
    ("watched", lambda: watched(core)),
    ("applied", lambda: applied(api)),
    ("version", lambda: client.VersionApi(api).get_code().minor == "36" or sys.exit("another version")),
]:
    check()
    print("ok", name)
