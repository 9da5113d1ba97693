//! `kubectl autoscale`

use api::{Value, quantity::Quantity};
use serde_json::json;

use super::run_pod::ObjectCreator;
use crate::{
    errors::{CommandError, CommandResult},
    object::name_of,
    printers::ObjectPrinter,
    resource::{DryRun, ResourceBuilder},
    session::Session,
};

/// Makes autoscalers for objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let operation = format!("autoscaled{}", dry_run.suffix());
    ObjectPrinter::from_flags(flags, &operation)?;
    let (minimum, maximum) = (flags.int("min"), flags.int("max"));
    if maximum < 1 {
        crate::bail!("--max=MAXPODS is required and must be at least 1, max: {maximum}");
    }
    if maximum < minimum {
        crate::bail!("--max=MAXPODS must be larger or equal to --min=MINPODS, max: {maximum}, min: {minimum}");
    }
    let cpu = flags.string("cpu");
    if flags.int("cpu-percent") > 0 && !cpu.is_empty() {
        crate::bail!("--cpu-percent and --cpu are mutually exclusive");
    }
    for name in ["cpu", "memory"] {
        let text = flags.string(name);
        if !text.is_empty() {
            parse_target(name, &text)?;
        }
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    let explicit = builder.enforce_namespace;
    builder.arguments = session.arguments().to_vec();
    builder.flatten = true;
    builder.continue_on_error = true;
    let namespace = builder.namespace.clone();
    let mut count = 0;
    builder.visit(session, &mut |info| {
        count += 1;
        let scale = format!("{}/scale", info.mapping.resource);
        let has_scale = session.discovery()?.resources.iter().any(|resource| {
            resource.group == info.mapping.group && resource.version == info.mapping.version && resource.name == scale
        });
        if !has_scale {
            crate::bail!(
                "cannot autoscale a {}: could not find scale subresource for {}, Resource={} in discovery information",
                info.mapping.kind,
                format_args!("{}/{}", info.mapping.group, info.mapping.version),
                info.mapping.resource
            );
        }
        let name = match flags.string("name").as_str() {
            "" => name_of(&info.object).to_owned(),
            name => name.to_owned(),
        };
        let mut metadata = json!({"name": name});
        if explicit {
            metadata["namespace"] = namespace.clone().into();
        }
        let mut spec = json!({"maxReplicas": maximum, "scaleTargetRef": {"apiVersion": info.mapping.api_version(), "kind": info.mapping.kind, "name": info.name}});
        if minimum > 0 {
            spec["minReplicas"] = minimum.into();
        }
        let metrics = metrics_of(session)?;
        if !metrics.is_empty() {
            spec["metrics"] = metrics.into();
        }
        let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec});
        // Every object has a printer of its own: documents of YAML are not separated.
        let printer = ObjectPrinter::from_flags(flags, &operation)?;
        let creator = ObjectCreator { session, namespace: namespace.clone(), dry_run, printer };
        creator.create(hpa, "horizontalpodautoscalers").map_err(|error| without_fallback(session, error))
    })?;
    if count == 0 {
        crate::bail!("no objects passed to autoscale");
    }
    Ok(())
}

/// The error of a failed creation: upstream tries version 1 of the API next, where the same configuration fails the same way,
/// or says why that version cannot hold it.
fn without_fallback(session: &Session, error: CommandError) -> CommandError {
    let flags = &session.flags;
    let (cpu, memory) = (flags.string("cpu"), flags.string("memory"));
    let cause = match cpu.as_str() {
        "" => "empty input",
        _ if memory.is_empty() && (cpu.ends_with('%') || flags.int("cpu-percent") >= 0) => return error,
        _ => "%!w(<nil>)",
    };
    CommandError::new(format!(
        "failed to create autoscaling/v2 HPA and the configuration is incompatible with autoscaling/v1: {cause}"
    ))
}

fn metrics_of(session: &Session) -> CommandResult<Vec<Value>> {
    let flags = &session.flags;
    let mut metrics = Vec::new();
    let percent = flags.int("cpu-percent");
    if percent > 0 {
        metrics.push(resource_metric("cpu", json!({"type": "Utilization", "averageUtilization": percent})));
    }
    for name in ["cpu", "memory"] {
        let text = flags.string(name);
        if !text.is_empty() {
            metrics.push(resource_metric(name, parse_target(name, &text)?));
        }
    }
    Ok(metrics)
}

fn resource_metric(name: &str, target: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": name, "target": target}})
}

fn parse_target(name: &str, text: &str) -> CommandResult<Value> {
    if let Some(percent) = text.strip_suffix('%') {
        return match percent.parse::<i32>() {
            Ok(percent) if percent >= 0 => Ok(json!({"type": "Utilization", "averageUtilization": percent})),
            _ => Err(CommandError::new(format!("invalid percentage value: {percent}"))),
        };
    }
    // A number alone is in the unit that is usual for the resource.
    let unit = match text.parse::<f64>() {
        Ok(_) if name == "cpu" => "m",
        Ok(_) => "Mi",
        Err(_) => "",
    };
    match Quantity::canonicalize(&format!("{text}{unit}")) {
        Ok(quantity) => Ok(json!({"type": "AverageValue", "averageValue": quantity})),
        Err(_) => Err(CommandError::new(format!("invalid resource {name} value: {text}"))),
    }
}
