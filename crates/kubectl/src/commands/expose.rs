//! `kubectl expose`

use api::{Value, json::go_quote};
use serde_json::json;

use super::run_pod::{ObjectCreator, apply_overrides};
use crate::{
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of},
    printers::ObjectPrinter,
    resource::{DryRun, ResourceBuilder, ResourceInfo},
    session::Session,
};

/// Makes services for objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let printer = ObjectPrinter::from_flags(flags, &format!("exposed{}", dry_run.suffix()))?;
    let mut builder = ResourceBuilder::from_session(session)?;
    let explicit = builder.enforce_namespace;
    builder.label_selector.clear();
    builder.arguments = session.arguments().to_vec();
    builder.flatten = true;
    builder.continue_on_error = true;
    let creator = ObjectCreator { session, namespace: builder.namespace.clone(), dry_run, printer };
    let namespace = explicit.then(|| builder.namespace.clone());
    let mut defaults = ExposeDefaults::from_flags(session)?;
    builder.visit(session, &mut |info| {
        let service = make_service(session, &info, namespace.as_deref(), &mut defaults)?;
        let service = apply_overrides(service, &flags.string("overrides"), &flags.string("override-type"))?;
        creator.create(service, "services")
    })
}

/// Values that flags leave open; the first object that has one decides, for the objects after it too.
struct ExposeDefaults {
    selector: Option<Value>,
    port: String,
    ports: Vec<(String, String)>,
    labels: Option<Value>,
}

impl ExposeDefaults {
    fn from_flags(session: &Session) -> CommandResult<Self> {
        let parse = |name: &str| match session.flags.string(name).as_str() {
            "" => Ok(None),
            text => parse_label_pairs(text).map(Some),
        };
        let port = session.flags.string("port");
        Ok(ExposeDefaults { selector: parse("selector")?, port, ports: Vec::new(), labels: parse("labels")? })
    }
}

/// Parses `key=value,…`.
fn parse_label_pairs(text: &str) -> CommandResult<Value> {
    let mut labels = json!({});
    for pair in text.split(',') {
        match pair.split('=').collect::<Vec<_>>().as_slice() {
            ["", _] => crate::bail!("unexpected empty label key"),
            [key, value] => labels[*key] = (*value).into(),
            _ => crate::bail!("unexpected label spec: {pair}"),
        }
    }
    Ok(labels)
}

/// The pod selector of an object that can be exposed.
fn selector_of(info: &ResourceInfo) -> CommandResult<Value> {
    let object = &info.object;
    let labels = match info.mapping.kind.as_str() {
        "ReplicationController" | "Service" => object.at("spec.selector"),
        "Pod" => object.at("metadata.labels"),
        "Deployment" | "ReplicaSet" => {
            if !object.list("spec.selector.matchExpressions").is_empty() {
                crate::bail!(
                    "couldn't convert expressions - {} to map-based selector format",
                    object["spec"]["selector"]["matchExpressions"]
                );
            }
            object.at("spec.selector.matchLabels")
        }
        _ => {
            let group = if info.mapping.group.is_empty() {
                info.mapping.kind.clone()
            } else {
                format!("{}.{}", info.mapping.kind, info.mapping.group)
            };
            crate::bail!("cannot expose a {group}")
        }
    };
    match (info.mapping.kind.as_str(), labels.and_then(Value::as_object).filter(|map| !map.is_empty())) {
        (_, Some(map)) => Ok(Value::Object(map.clone())),
        ("Service", None) => Err(CommandError::new("the service has no pod selector set")),
        ("Pod", None) => Err(CommandError::new("the pod has no labels and cannot be exposed")),
        (kind, None) => Err(CommandError::new(format!(
            "invalid {}: no selectors, therefore cannot be exposed",
            kind.to_lowercase()
        ))),
    }
}

fn object_ports(info: &ResourceInfo) -> Vec<(i64, String)> {
    let object = &info.object;
    if info.mapping.kind == "Service" {
        return object
            .list("spec.ports")
            .iter()
            .map(|port| (port.integer("port").unwrap_or(0), port.text("protocol").to_owned()))
            .collect();
    }
    let path = if info.mapping.kind == "Pod" { "spec.containers" } else { "spec.template.spec.containers" };
    let ports = object.list(path).iter().flat_map(|container| container.list("ports"));
    ports.map(|port| (port.integer("containerPort").unwrap_or(0), port.text("protocol").to_owned())).collect()
}

fn make_service(
    session: &Session,
    info: &ResourceInfo,
    namespace: Option<&str>,
    defaults: &mut ExposeDefaults,
) -> CommandResult<Value> {
    let flags = &session.flags;
    let known = ["ReplicationController", "Service", "Pod", "Deployment", "ReplicaSet"];
    if !known.contains(&info.mapping.kind.as_str()) {
        selector_of(info)?;
    }
    let selector = match &defaults.selector {
        None => selector_of(info).map_err(|error| match error.to_string().starts_with("cannot expose") {
            true => error,
            false => {
                CommandError::new(format!("couldn't retrieve selectors via --selector flag or introspection: {error}"))
            }
        })?,
        Some(selector) => selector.clone(),
    };
    defaults.selector = Some(selector.clone());
    let own: Vec<(String, String)> =
        object_ports(info).into_iter().map(|(port, protocol)| (port.to_string(), protocol)).collect();
    if defaults.port.is_empty() {
        match own.as_slice() {
            [] if flags.string("cluster-ip") != "None" => return Err(missing_port()),
            [] => {}
            [(port, _)] => defaults.port.clone_from(port),
            several => defaults.ports = several.to_vec(),
        }
    }
    let protocol_of = |port: &str| {
        let found = own.iter().find(|(known, _)| known == port);
        found.map(|(_, protocol)| protocol.clone()).unwrap_or_default()
    };
    let ports: Vec<(String, String)> = match defaults.port.as_str() {
        _ if !defaults.ports.is_empty() => defaults.ports.clone(),
        "" => Vec::new(),
        port => port.split(',').map(|port| (port.to_owned(), protocol_of(port))).collect(),
    };
    let name = match flags.string("name").as_str() {
        "" => name_of(&info.object).chars().take(63).collect::<String>(),
        name => name.to_owned(),
    };
    let own_labels = info.object.map("metadata.labels").filter(|labels| !labels.is_empty()).cloned();
    let labels = defaults.labels.clone().or_else(|| own_labels.map(Value::Object));
    defaults.labels.clone_from(&labels);
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    if let Some(labels) = labels.filter(|labels| labels.as_object().is_some_and(|map| !map.is_empty())) {
        metadata["labels"] = labels;
    }
    let spec = service_spec(session, selector, &ports)?;
    Ok(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
}

fn missing_port() -> CommandError {
    CommandError::new("couldn't find port via --port flag or introspection")
}

fn service_spec(session: &Session, selector: Value, ports: &[(String, String)]) -> CommandResult<Value> {
    let flags = &session.flags;
    let mut spec = json!({"selector": selector});
    let target = flags.string("target-port");
    let several = ports.len() > 1;
    let mut entries = Vec::new();
    for (at, (port, own_protocol)) in ports.iter().enumerate() {
        let number: i64 = port
            .parse()
            .map_err(|_| CommandError::new(format!("strconv.Atoi: parsing {}: invalid syntax", go_quote(port))))?;
        let protocol = match (flags.string("protocol"), own_protocol.as_str()) {
            (flag, _) if !flag.is_empty() => flag,
            (_, "") => "TCP".to_owned(),
            (_, own) => own.to_owned(),
        };
        let mut entry = json!({"port": number, "protocol": protocol});
        if several {
            entry["name"] = format!("port-{}", at + 1).into();
        }
        entry["targetPort"] = match target.as_str() {
            "" => number.into(),
            text => text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from),
        };
        entries.push(entry);
    }
    if !entries.is_empty() {
        spec["ports"] = entries.into();
    }
    for (flag, field) in [
        ("type", "type"),
        ("load-balancer-ip", "loadBalancerIP"),
        ("cluster-ip", "clusterIP"),
        ("session-affinity", "sessionAffinity"),
    ] {
        let value = flags.string(flag);
        // Only a balancer has that address.
        let applies = field != "loadBalancerIP" || spec.text("type") == "LoadBalancer";
        if !value.is_empty() && applies {
            spec[field] = value.into();
        }
    }
    if !spec.text("sessionAffinity").is_empty() && !["ClientIP", "None"].contains(&spec.text("sessionAffinity")) {
        crate::bail!("unknown session affinity: {}", spec.text("sessionAffinity"));
    }
    let external = flags.string("external-ip");
    if !external.is_empty() {
        spec["externalIPs"] = json!([external]);
    }
    Ok(spec)
}
