//! Compares validation and defaulting with recorded exchanges of kube-apiserver.

use crate::shared;
use std::collections::{BTreeMap, HashMap};

use crate::shared::{differences, lines};
use ferry_api::{
    Map, Value, decode, defaults, meta,
    schema::{Resource, ResourceScope, schema},
    validate::{self, FieldError},
};
use serde_json::json;

const FILES: [&str; 4] = ["exchanges", "watch", "custom", "gate"];
/// The fields that an upstream server sets besides client input and defaults.
const SET_BY_SERVER: &[&str] = &[
    ".apiVersion",
    ".kind",
    ".metadata",
    ".status",
    ".spec.clusterIP",
    ".spec.clusterIPs",
    ".spec.ipFamilies",
    ".spec.ipFamilyPolicy",
    ".spec.ports",
    ".spec.serviceAccount",
    ".spec.serviceAccountName",
    ".spec.priority",
    ".spec.preemptionPolicy",
    ".spec.tolerations",
    ".spec.volumes",
    ".spec.containers",
    ".spec.selector",
    ".spec.template.metadata",
    ".spec.finalizers",
    ".spec.username",
    ".spec.groups",
    ".spec.uid",
    ".spec.extra",
    ".spec.nodeName",
    ".spec.taints",
];

fn resource(path: &str) -> Option<(&'static Resource, String, Option<String>)> {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, name, object) = match rest {
        ["namespaces", namespace, name] => (*namespace, *name, None),
        ["namespaces", namespace, name, object] => (*namespace, *name, Some((*object).to_owned())),
        [name] => ("", *name, None),
        [name, object] => ("", *name, Some((*object).to_owned())),
        _ => return None,
    };
    Some((schema().resource(group, version, name)?, namespace.to_owned(), object))
}

/// The object as it reaches validation: canonical, defaulted and prepared for create.
fn prepare_object(resource: &Resource, namespace: &str, body: &Value) -> Option<Value> {
    let mut object = decode::canonicalize(resource.ty, body.clone()).ok()?.object;
    let metadata = meta::metadata_mut(&mut object);
    if resource.scope == ResourceScope::Namespaced {
        metadata.insert("namespace".into(), namespace.into());
    }
    if resource.kind != "SubjectAccessReview" && resource.kind != "LocalSubjectAccessReview" {
        metadata.insert("uid".into(), "00000000-0000-0000-0000-000000000000".into());
    }
    defaults::apply_defaults(resource.ty, &mut object);
    if resource.kind == "Pod" {
        meta::field_mut(&mut object, "spec").entry("serviceAccountName").or_insert("default".into());
    }
    if resource.kind == "Service"
        && object["spec"].get("clusterIP").is_some()
        && object["spec"].get("clusterIPs").is_none()
    {
        object["spec"]["clusterIPs"] = json!([object["spec"]["clusterIP"]]);
    }
    if resource.kind == "Job" && object["spec"]["manualSelector"] != true {
        let (uid, name) = (meta::uid(&object).to_owned(), meta::name(&object).to_owned());
        object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        let template = meta::field_mut(&mut object["spec"], "template");
        let inner = meta::object_mut(template.entry("metadata").or_insert_with(|| json!({})));
        let labels = meta::object_mut(inner.entry("labels").or_insert_with(|| json!({})));
        for (key, value) in [("controller-uid", &uid), ("job-name", &name)] {
            labels.insert(key.into(), value.as_str().into());
            labels.insert(format!("batch.kubernetes.io/{key}"), value.as_str().into());
        }
    }
    Some(object)
}

fn status_causes(response: &Value) -> Vec<String> {
    let list = response["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    list.iter()
        .map(|cause| format!("{} {} {}", text(cause, "field"), text(cause, "reason"), text(cause, "message")))
        .collect()
}

fn format_errors(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(|error| format!("{} {} {}", error.field, error.kind.reason(), error.error_body())).collect()
}

fn exchanges() -> Option<Vec<Value>> {
    let mut all = Vec::new();
    for file in FILES {
        let lines = lines(&format!("golden/{file}.jsonl"))?;
        all.extend(lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON")));
    }
    Some(all)
}

/// Reports the number of differing cases and fails if it exceeds `allowed`.
fn report_differences(title: &str, checked: usize, differing: &BTreeMap<String, Vec<String>>, allowed: usize) {
    let count: usize = differing.values().map(Vec::len).sum();
    eprintln!("{title}: {checked} checked, {count} differ");
    for (kind, cases) in differing {
        eprintln!("  {kind}: {}", cases.len());
        cases.iter().for_each(|case| eprintln!("    {case}"));
    }
    assert!(count <= allowed, "{title}: {count} differ, {allowed} did before");
}

/// Whether a response comes from outside validation: CEL compilation or admission.
fn is_outside_validation(response: &Value) -> bool {
    let text = response.to_string();
    let marks =
        ["compilation failed", "cost", "must evaluate to", "ValidatingAdmissionPolicy '", "pod-security.kubernetes.io"];
    marks.iter().any(|mark| text.contains(mark))
}

#[test]
fn rejected_creates_have_upstreams_errors() {
    let Some(exchanges) = exchanges() else { return };
    let (mut checked, mut differing) = (0, BTreeMap::<String, Vec<String>>::new());
    for exchange in &exchanges {
        let (status, response) = (&exchange["status"], &exchange["response"]);
        if exchange["method"] != "POST"
            || *status != 422
            || response["reason"] != "Invalid"
            || is_outside_validation(response)
        {
            continue;
        }
        let Some((resource, namespace, None)) = resource(exchange["path"].as_str().unwrap_or_default()) else {
            continue;
        };
        let Some(object) = prepare_object(resource, &namespace, &exchange["body"]) else { continue };
        checked += 1;
        let (want, got) = (status_causes(response), format_errors(&validate::validate_create(resource, &object)));
        if want != got {
            let case = format!("{}\n      want {want:#?}\n      got  {got:#?}", exchange["id"]);
            differing.entry(resource.kind.to_owned()).or_default().push(case);
        }
    }
    report_differences("refused creations", checked, &differing, 0);
}

#[test]
fn accepted_creates_have_upstreams_defaults() {
    let Some(exchanges) = exchanges() else { return };
    let (mut checked, mut differing) = (0, BTreeMap::<String, Vec<String>>::new());
    for exchange in exchanges.iter().filter(|exchange| exchange["method"] == "POST" && exchange["status"] == 201) {
        let Some((resource, namespace, None)) = resource(exchange["path"].as_str().unwrap_or_default()) else {
            continue;
        };
        let Some(mut object) = prepare_object(resource, &namespace, &exchange["body"]) else { continue };
        if resource.verbs == ["create"] {
            continue;
        }
        if let Some(prefix) = object["metadata"]["generateName"].as_str().map(str::to_owned) {
            object["metadata"]["name"] = format!("{prefix}abcde").into();
        }
        checked += 1;
        let mut found = format_errors(&validate::validate_create(resource, &object));
        if exchange["response"]["kind"] == resource.kind {
            differences("", &exchange["response"], &object, &mut found);
        }
        found.retain(|line| !SET_BY_SERVER.iter().any(|field| line.starts_with(field)));
        if !found.is_empty() {
            differing.entry(resource.kind.to_owned()).or_default().push(format!("{} {found:#?}", exchange["id"]));
        }
    }
    report_differences("accepted creations", checked, &differing, 0);
}

#[test]
fn rejected_updates_have_upstreams_errors() {
    let Some(exchanges) = exchanges() else { return };
    let mut known: HashMap<String, Value> = HashMap::new();
    let (mut checked, mut differing) = (0, BTreeMap::<String, Vec<String>>::new());
    for exchange in &exchanges {
        let path = exchange["path"].as_str().unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
        let (method, status, response) = (&exchange["method"], &exchange["status"], &exchange["response"]);
        let changed = *method == "PATCH" || *method == "PUT";
        if changed && *status == 422 && response["reason"] == "Invalid" && !is_outside_validation(response) {
            if let (Some((resource, _, Some(_))), Some(old)) = (resource(&path), known.get(&path))
                && let Some(object) = apply_exchange(exchange, old)
                && let Some(object) = decode::canonicalize(resource.ty, object).ok().map(|decoded| decoded.object)
            {
                checked += 1;
                let (want, got) =
                    (status_causes(response), format_errors(&validate::validate_update(resource, &object, old)));
                if want != got && !want.iter().any(|cause| cause.starts_with("fieldManager ")) {
                    let case = format!("{}\n      want {want:#?}\n      got  {got:#?}", exchange["id"]);
                    differing.entry(resource.kind.to_owned()).or_default().push(case);
                }
            }
        } else if let Some(pod) = path.strip_suffix("/binding").filter(|_| *status == 201) {
            if let Some(pod) = known.get_mut(pod) {
                pod["spec"]["nodeName"] = exchange["body"]["target"]["name"].clone();
            }
        } else if let Some(name) = response["metadata"]["name"].as_str().filter(|_| status.as_i64() < Some(300)) {
            let path = if *method == "POST" { format!("{path}/{name}") } else { path };
            known.insert(path, response.clone());
        }
    }
    // Upstream compares the bytes of a ControllerRevision's data, so that whitespace differences reject label patches.
    report_differences("refused changes", checked, &differing, 2);
}

/// The object after a merge patch or replacement; other patches are skipped.
fn apply_exchange(exchange: &Value, old: &Value) -> Option<Value> {
    let kind = exchange["headers"]["Content-Type"].as_str().unwrap_or_default();
    let body = &exchange["body"];
    match (exchange["method"].as_str()?, kind) {
        ("PUT", _) => Some(body.clone()),
        ("PATCH", "application/merge-patch+json" | "application/strategic-merge-patch+json") => {
            let mut new = old.clone();
            merge_patch(&mut new, body);
            Some(new)
        }
        _ => None,
    }
}

fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let target = meta::object_mut(target);
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        if value.is_null() {
            target.remove(key);
        } else {
            merge_patch(target.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())), value);
        }
    }
}

#[test]
fn fully_populated_objects_never_panic() {
    let Some(names) = shared::fixtures("fixtures/api") else { return };
    let objects: Vec<Value> = names.iter().map(|name| shared::fixture(&format!("fixtures/api/{name}"))).collect();
    for resource in schema().resources() {
        for object in &objects {
            if object["kind"] != resource.kind {
                continue;
            }
            let Ok(mut decoded) = decode::canonicalize(resource.ty, object.clone()).map(|decoded| decoded.object)
            else {
                continue;
            };
            defaults::apply_defaults(resource.ty, &mut decoded);
            let empty = json!({"metadata": {"name": "x"}});
            validate::validate_create(resource, &decoded);
            validate::validate_update(resource, &decoded, &empty);
            validate::validate_update(resource, &empty, &decoded);
            validate::validate_subresource_update_at(resource, "status", &decoded, &empty, None);
            let same = validate::validate_update(resource, &decoded, &decoded);
            assert!(same.iter().all(|error| error.message != "field is immutable"), "{}: {same:?}", resource.kind);
        }
    }
}

#[test]
fn arbitrary_values_never_panic() {
    let odd = [
        json!(null),
        json!(-1),
        json!("\u{0}/%é"),
        json!([]),
        json!({}),
        json!([[1, "x"], {}]),
        json!({"a": {"b": [1]}}),
    ];
    for resource in schema().resources() {
        let ty = schema().get(resource.ty);
        for value in &odd {
            let fields: Map = ty.fields.iter().map(|field| (field.name.to_owned(), value.clone())).collect();
            let object = Value::Object(fields);
            let other =
                json!({"metadata": value, "spec": {"template": {"spec": value}, "rules": value, "selector": value}});
            for (new, old) in [(&object, &other), (&other, &object)] {
                validate::validate_create(resource, new);
                validate::validate_update(resource, new, old);
                validate::validate_subresource_update_at(resource, "status", new, old, None);
                for part in resource.subresources.iter().map(|part| part.name).chain(["warnings"]) {
                    validate::validate_subresource_update_at(resource, part, new, old, None);
                }
                validate::collect_warnings(resource, new, Some(old));
            }
        }
    }
}

/// The warnings about an object created in the default namespace.
fn create_warnings(group: &str, version: &str, name: &str, body: Value) -> Vec<String> {
    let resource = schema().resource(group, version, name).expect("there is such a resource");
    let object = prepare_object(resource, "default", &body).expect("the object is of its type");
    validate::collect_warnings(resource, &object, None)
}

#[test]
fn warnings_equal_upstreams() {
    let container = |name: &str| {
        json!({"name": name, "image": "i", "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})
    };
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"},
        "volumes": [{"name": "v", "gitRepo": {"repository": "r"}}], "containers": [container("a"), container("b")]}});
    let want = [
        "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
        "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
        "spec.containers[1].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
        "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
    ];
    assert_eq!(create_warnings("", "v1", "pods", pod), want);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["010.1.1.1"]}});
    let want = [
        "spec.externalIPs[0]: non-standard IP address \"010.1.1.1\" is invalid: use \"10.1.1.1\"",
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    ];
    assert_eq!(create_warnings("", "v1", "services", service), want);
    let endpoints = schema().resource("", "v1", "endpoints").and_then(Resource::deprecation_warning);
    let want = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    assert_eq!(endpoints.as_deref(), Some(want));
}

#[test]
fn no_warnings_where_upstream_has_none() {
    let Some(exchanges) = exchanges() else { return };
    let quiet = |exchange: &&Value| {
        let warnings = exchange.get("warnings").and_then(Value::as_array);
        exchange["method"] == "POST" && exchange["status"] == 201 && warnings.is_some_and(Vec::is_empty)
    };
    for exchange in exchanges.iter().filter(quiet) {
        let Some((resource, namespace, None)) = resource(exchange["path"].as_str().unwrap_or_default()) else {
            continue;
        };
        let Some(object) = prepare_object(resource, &namespace, &exchange["body"]) else { continue };
        assert_eq!(validate::collect_warnings(resource, &object, None), Vec::<String>::new(), "{}", exchange["id"]);
    }
}

#[test]
fn pod_certificate_request_needs_proof_of_possession() {
    // A PKCS#10 request of OpenSSL for a P-256 key.
    const REQUEST: &str = "MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABGKS1hV0wpfoj8qCUzD12R8+VBOH8TbfI+iYwWcl\
        ulIediLooMMpyAp4HZqeQmtFtbbXyuMIsipR4JttG3X3e4ugADAKBggqhkjOPQQDAgNIADBFAiEA3XnWmf6jscD8dSq5mbGVWwY6750g\
        guHSh+oLC1ftx3YCIEN7OeQ1jQBarCcC0IA4nF60Ek6O1fc3aDqpyx3Euva1";
    let requests = schema().resource("certificates.k8s.io", "v1beta1", "podcertificaterequests").expect("a resource");
    // A P-521 request and an RSA key: unsupported signatures are rejected by name.
    const P521: &str = "MIIBTjCBsQIBADAMMQowCAYDVQQDDAF4MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBUOevvmAIelcM8Sgz6QlAoGLY66mjxTJh\
        IgzLil45cGMOeF6FCRguVE2H3f+LrgVJyi/3dh0lPS78INWPPorFeisAOBIprPAoboHMgOw/+06r9cUxEvoJAwB9YFs4aHaPwWxO\
        NvEwWn9xm/cqzxDKwvfsXmXCTZytXDPXnv+uRa18MZ+gADAKBggqhkjOPQQDAgOBiwAwgYcCQgCFegcOe/zSf3jZ9Heaj5zeq7rf\
        ZFpMyXiQ9M2lyKeXKCuBherLsp01j96mzl5M2R2rtkGYI02aiqknzU+hAGj3PwJBBQ5QPA4aj0z9PU7wo6SAkhYH40ZojJNFFt1O\
        WDOZep275WC2fVLFziofoMxbZBjZtJhUl52Xh9Tz7q9gnzzsk6Q=";
    const RSA: &str = "MIIBojANBgkqhkiG9w0BAQEFAAOCAY8AMIIBigKCAYEA0Vfa9Gru9mn6+47ozaoE/XrZEILs5M1zTvTRyc7GYD2DM1BQNG6DkBwc\
        uvxIDU+czM6alXr8DprLcdGOnFfdPiahg9CeOrrWQCTCO2+ga+2JKHiW4KlhTE3h0St3gFNWyYCmqKu7QIX0gazjfqgoxYn3wibP\
        B7u62liRQtLyLV99/1WQ0QlqqNOvMFqu3dJJQpXQDXkuCCegD2qfDWJW1aKSI++i98Ud9OC4SeYi+XKsEe9nx3XS1FcDLOylxDaF\
        hkQtCkVI0AJD0w+prPwpNQv+Hftl3LsGPafq2Umhf1MjYpbTYdTKRW7Qs0NerOMCzOgU8F6Djww88rbPMOx6soJn9Su3OpSqeVkX\
        97nNW4XJyevRD0J6Ffi5AfyplFyiokCTugEdlo4xf/kKLu+dqBTEerwXFH0V0NHDUifNFQEG+Mc2kbL6y4AkV4hNKshvi+uFHr1b\
        ioUG+drk+rMj2tQr0y5EvnOjIrAPnli8Uvr6W6LaJIYJZly2VqycYcaJAgMBAAE=";
    let spec = |fields: Value| {
        let mut body = json!({"metadata": {"name": "r"}, "spec": {"signerName": "example.com/s", "podName": "p",
            "podUID": "u", "serviceAccountName": "s", "serviceAccountUID": "su", "nodeName": "n", "nodeUID": "nu",
            "maxExpirationSeconds": 7200}});
        let fields = fields.as_object().cloned().unwrap_or_default();
        body["spec"].as_object_mut().expect("a spec").extend(fields);
        let object = prepare_object(requests, "default", &body).expect("the object is of its type");
        format_errors(&validate::validate_create(requests, &object))
    };
    let check = |request: &str| spec(json!({"stubPKCS10Request": request}));
    assert_eq!(check(REQUEST), Vec::<String>::new());
    assert!(check(P521)[0].contains("P-521 are not supported by this server"), "{:?}", check(P521));
    let proof = spec(json!({"pkixPublicKey": RSA, "proofOfPossession": "AAAA"}));
    assert!(proof[0].contains("by RSA keys are not supported by this server"), "{proof:?}");
    let mut wrong = REQUEST.to_owned();
    wrong.replace_range(40..41, if &REQUEST[40..41] == "A" { "B" } else { "A" });
    assert_eq!(check(&wrong).len(), 1, "{:?}", check(&wrong));
    assert_eq!(check("AAAA"), ["spec.stubPKCS10Request FieldValueInvalid Invalid value: must be a valid PKCS#10 CSR"]);
}

#[test]
fn deeply_nested_schemas_are_validated() {
    let crds = schema().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("a resource");
    let mut inner = json!({"type": "string"});
    for _ in 0..115 {
        inner = json!({"type": "object", "properties": {"a": inner}});
    }
    let body = json!({"metadata": {"name": "as.e.io"}, "spec": {"group": "e.io", "scope": "Cluster",
        "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": inner}}]}});
    let text = body.to_string();
    let (mut object, _) = decode::decode_json(crds.ty, text.as_bytes(), decode::FieldValidation::Strict)
        .expect("not too deep to be read");
    object["status"] = json!({"storedVersions": ["v1"]});
    assert_eq!(format_errors(&validate::validate_create(crds, &object)), Vec::<String>::new());
}

/// The errors about a new object.
fn create_errors(group: &str, version: &str, name: &str, body: Value) -> Vec<String> {
    let resource = schema().resource(group, version, name).expect("a resource");
    validate::validate_create(resource, &body).iter().map(ToString::to_string).collect()
}

#[test]
fn crd_defaults_must_match_their_schema() {
    let told = |schema: Value| {
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"a": schema}}}}}});
        let spec = json!({"group": "g.example.com", "scope": "Namespaced", "versions": [version], "conversion": {"strategy": "None"},
            "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"}});
        let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "as.g.example.com"}, "spec": spec, "status": {"storedVersions": ["v1"]}});
        create_errors("apiextensions.k8s.io", "v1", "customresourcedefinitions", body)
    };
    let check = |schema: Value, want: &[&str]| {
        let at = "spec.validation.openAPIV3Schema.properties[spec].properties[a].default";
        let want: Vec<String> = want.iter().map(|fault| format!("{at}{fault}")).collect();
        let got: Vec<String> = told(schema).into_iter().filter(|fault| fault.contains(".default")).collect();
        assert_eq!(got, want);
    };
    check(json!({"type": "integer", "default": 3, "minimum": 1}), &[]);
    check(
        json!({"type": "integer", "default": "x"}),
        &[r#": Invalid value: "string":  in body must be of type integer: "string""#],
    );
    check(
        json!({"type": "integer", "default": 0, "minimum": 1}),
        &[": Invalid value: 0:  in body should be greater than or equal to 1"],
    );
    check(
        json!({"type": "string", "default": "c", "enum": ["a", "b"]}),
        &[r#": Unsupported value: "c": supported values: "a", "b""#],
    );
    let list = json!({"type": "array", "items": {"type": "string"}, "maxItems": 1, "default": ["a", 2]});
    check(
        list,
        &[
            r#".[1]: Invalid value: "integer": [1] in body must be of type string: "integer""#,
            ": Too many: 2: must have at most 1 item",
        ],
    );
    let object = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}, "default": {}});
    check(object, &[".k: Required value"]);
}

#[test]
fn v1_autoscaler_target_is_validated_as_utilization() {
    let body = json!({"metadata": {"name": "h", "namespace": "n"}, "spec": {"maxReplicas": 2, "targetCPUUtilizationPercentage": 0,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let want = "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0";
    assert_eq!(create_errors("autoscaling", "v1", "horizontalpodautoscalers", body), [want]);
}
