//! The least that an object of a kind must have to be valid.

use serde_json::{Value, json};

/// Kinds that carry certificates, which a test cannot write down in a line.
pub const CERTIFIED: &[&str] = &["CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"];

/// A valid object of a kind in a version; `name` is its name unless the kind wants a form of its own.
pub fn object(kind: &str, api_version: &str, name: &str) -> Value {
    let mut object = match rest(kind, api_version) {
        Value::Object(map) => Value::Object(map),
        _ => json!({}),
    };
    let name = match kind {
        "APIService" => "v1.none.example.com",
        "CustomResourceDefinition" => "widgets.example.com",
        "CSIDriver" => "driver.example.com",
        "IPAddress" => "10.1.2.3",
        "StorageVersion" => "example.com.widgets",
        _ => name,
    };
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": name});
    object
}

/// The fields of an object besides its metadata.
fn rest(kind: &str, api_version: &str) -> Value {
    let template =
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    let mut job = json!({"template": template});
    job["template"]["spec"]["restartPolicy"] = "Never".into();
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => {
            json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}})
        }
        "ReplicationController" => json!({"spec": {"selector": {"app": "x"}, "template": template}}),
        "Pod" => json!({"spec": template["spec"]}),
        "PodTemplate" => json!({"template": template}),
        "Job" => json!({"spec": job}),
        "CronJob" => json!({"spec": {"schedule": "@hourly", "jobTemplate": {"spec": job}}}),
        "ControllerRevision" => json!({"revision": 1, "data": {"a": 1}}),
        "HorizontalPodAutoscaler" => {
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}}})
        }
        "PodDisruptionBudget" => json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}),
        _ => [cluster(kind, api_version), storage(kind), network(kind), policy(kind), devices(kind, api_version)]
            .into_iter()
            .find(|found| !found.is_null())
            .unwrap_or_default(),
    }
}

fn cluster(kind: &str, api_version: &str) -> Value {
    let service = json!({"name": "s", "namespace": "default"});
    match kind {
        "Event" if api_version == "v1" => {
            json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "x"}, "reason": "R", "type": "Normal"})
        }
        "Event" => json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "e.com/c", "action": "A",
            "reportingInstance": "i", "reason": "R", "type": "Normal", "regarding": {"kind": "Pod", "namespace": "default", "name": "x"}}),
        "APIService" => json!({"spec": {"group": "none.example.com", "version": "v1", "groupPriorityMinimum": 100,
            "versionPriority": 10, "insecureSkipTLSVerify": true, "service": service}}),
        "CustomResourceDefinition" => json!({"spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
        "RuntimeClass" => json!({"handler": "h"}),
        "PriorityClass" => json!({"value": 1}),
        "LeaseCandidate" => {
            json!({"spec": {"leaseName": "l", "binaryVersion": "1.36.4", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion"}})
        }
        "FlowSchema" => json!({"spec": {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1000}}),
        "PriorityLevelConfiguration" => {
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}})
        }
        "StorageVersionMigration" => {
            json!({"spec": {"resource": {"group": "apps", "resource": "deployments", "version": "v1"}}})
        }
        "ClusterRoleBinding" | "RoleBinding" => {
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}})
        }
        "ResourceQuota" => json!({"spec": {"hard": {"pods": "1"}}}),
        _ => Value::Null,
    }
}

fn storage(kind: &str) -> Value {
    match kind {
        "PersistentVolumeClaim" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        "PersistentVolume" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}})
        }
        "StorageClass" => json!({"provisioner": "e.com/p"}),
        "VolumeAttachment" => {
            json!({"spec": {"attacher": "a.e.com", "nodeName": "n", "source": {"persistentVolumeName": "p"}}})
        }
        "CSIStorageCapacity" => json!({"storageClassName": "s", "capacity": "1Gi"}),
        "VolumeAttributesClass" => json!({"driverName": "e.com/d", "parameters": {"a": "b"}}),
        "CSINode" => json!({"spec": {"drivers": []}}),
        _ => Value::Null,
    }
}

fn network(kind: &str) -> Value {
    match kind {
        "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
        "Ingress" => json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        "IngressClass" => json!({"spec": {"controller": "e.com/c"}}),
        "IPAddress" => json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "x"}}}),
        "ServiceCIDR" => json!({"spec": {"cidrs": ["10.97.0.0/24"]}}),
        "EndpointSlice" => json!({"addressType": "IPv4", "endpoints": []}),
        _ => Value::Null,
    }
}

fn policy(kind: &str) -> Value {
    let rules =
        json!([{"apiGroups": ["none.e.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}]);
    let matches =
        json!({"resourceRules": rules, "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}});
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => json!({"webhooks": [{"name": "a.e.com",
            "clientConfig": {"url": "https://127.0.0.1:1/x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": rules}]}),
        "ValidatingAdmissionPolicy" => {
            json!({"spec": {"matchConstraints": matches, "validations": [{"expression": "true"}]}})
        }
        "MutatingAdmissionPolicy" => {
            json!({"spec": {"matchConstraints": matches, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]}})
        }
        "ValidatingAdmissionPolicyBinding" => json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}}),
        "MutatingAdmissionPolicyBinding" => json!({"spec": {"policyName": "p"}}),
        _ => Value::Null,
    }
}

fn devices(kind: &str, api_version: &str) -> Value {
    let request = match api_version {
        "resource.k8s.io/v1beta1" => json!({"name": "r", "deviceClassName": "c"}),
        _ => json!({"name": "r", "exactly": {"deviceClassName": "c"}}),
    };
    let claim = json!({"devices": {"requests": [request]}});
    match kind {
        "ResourceClaim" => json!({"spec": claim}),
        "ResourceClaimTemplate" => json!({"spec": {"spec": claim}}),
        "ResourceSlice" => {
            json!({"spec": {"driver": "d.e.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
        }
        "DeviceTaintRule" => json!({"spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}),
        "ResourcePoolStatusRequest" => json!({"spec": {"driver": "d.e.com"}}),
        "Workload" => json!({"spec": {"podGroupTemplates": [{"name": "g", "schedulingPolicy": {"basic": {}}}]}}),
        "PodGroup" => json!({"spec": {"schedulingPolicy": {"basic": {}}}}),
        _ => Value::Null,
    }
}
