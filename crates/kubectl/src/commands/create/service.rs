//! Generators of services.

use api::Value;
use formats::names;
use serde_json::json;

use super::Generator;
use crate::errors::{CommandError, CommandResult};

/// `create service …`
pub fn service(generator: &Generator, kind: &str) -> CommandResult {
    let flags = &generator.session.flags;
    let (cluster_ip, external_name, tcp) =
        (flags.string("clusterip"), flags.string("external-name"), flags.strings("tcp"));
    if cluster_ip == "None" && kind != "ClusterIP" {
        crate::bail!("ClusterIP=None can only be used with ClusterIP service type");
    }
    if cluster_ip != "None" && tcp.is_empty() && kind != "ExternalName" {
        crate::bail!("at least one tcp port specifier must be provided");
    }
    if kind == "ExternalName" && !names::check_dns_subdomain(&external_name).is_empty() {
        crate::bail!("invalid service external name {external_name}");
    }
    let mut ports = Vec::new();
    for text in &tcp {
        let (port, target) = parse_ports(text)?;
        let mut entry = json!({"name": text.replace(':', "-"), "port": port, "targetPort": target, "protocol": "TCP"});
        let node_port = if flags.has("node-port") { flags.int("node-port") } else { 0 };
        if node_port != 0 {
            entry["nodePort"] = node_port.into();
        }
        ports.push(entry);
    }
    let labels = json!({"app": generator.name});
    let mut metadata = generator.metadata();
    metadata["labels"] = labels.clone();
    let mut spec = json!({"type": kind, "selector": labels});
    if !ports.is_empty() {
        spec["ports"] = ports.into();
    }
    if !external_name.is_empty() {
        spec["externalName"] = external_name.into();
    }
    if !cluster_ip.is_empty() {
        spec["clusterIP"] = cluster_ip.into();
    }
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    generator.finish(object, "services", true, &format!("failed to create {kind} service: "))
}

/// Parses `port` or `port:targetPort`.
pub fn parse_ports(text: &str) -> CommandResult<(i64, Value)> {
    let (port, target) = text.split_once(':').map_or((text, None), |(port, target)| (port, Some(target)));
    let number = crate::flag_value::parse_int(port, 32)
        .map_err(|_| ())
        .and_then(|number| if (0..=65535).contains(&number) && !port.starts_with('-') { Ok(number) } else { Err(()) });
    let Ok(port) = number else {
        let reason = if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() {
            "value out of range"
        } else {
            "invalid syntax"
        };
        crate::bail!("strconv.ParseUint: parsing {}: {reason}", api::json::go_quote(port));
    };
    let Some(target) = target else { return Ok((port, port.into())) };
    let target = target.split(':').next().unwrap_or(target);
    match target.parse::<i64>() {
        Ok(number) if (1..=65535).contains(&number) => Ok((port, number.into())),
        Ok(_) => Err(CommandError::new(names::inclusive_range_error(1, 65535))),
        Err(_) => {
            let faults = names::check_port_name(target);
            if faults.is_empty() { Ok((port, target.into())) } else { Err(CommandError::new(faults.join(","))) }
        }
    }
}
