//! The priority levels and flow schemas of a new cluster, read from `bootstrap.txt`. Objects with the auto-update
//! annotation are restored; the others belong to administrators.

use api::{Value, schema::Resource, status::Status};
use apiserver_core::{
    bootstrap_table::{self as lines, TableRule, malformed_line},
    loopback,
};
use serde_json::json;

const TABLE: &str = include_str!("bootstrap.txt");
const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Annotation of objects that the server keeps up to date.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Returns the objects of the table with their resource; levels come before schemas.
pub fn bootstrap_objects() -> Result<Vec<(&'static Resource, Value)>, Status> {
    let mut objects: Vec<(&Resource, Value)> = Vec::new();
    for line in lines::table_lines(TABLE) {
        match lines::parse_rule(line) {
            Some(rule) => {
                let (_, schema) = objects.last_mut().ok_or_else(|| malformed_line(line))?;
                add_rule(&mut schema["spec"]["rules"][0], &rule);
            }
            None => {
                let (resource, name, spec) = parse_header(line).ok_or_else(|| malformed_line(line))?;
                let metadata = json!({"name": name, "annotations": {AUTO_UPDATE: "true"}});
                let resource = loopback::find_resource(GROUP, "v1", resource)?;
                objects.push((resource, json!({"metadata": metadata, "spec": spec})));
            }
        }
    }
    Ok(objects)
}

fn parse_header(line: &'static str) -> Option<(&'static str, &'static str, Value)> {
    let (kind, rest) = line.split_once(' ')?;
    let (name, words) = rest.split_once(' ').unwrap_or((rest, ""));
    match kind {
        "exempt" => {
            let spec = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
            Some(("prioritylevelconfigurations", name, spec))
        }
        "level" => Some(("prioritylevelconfigurations", name, parse_priority_level(words)?)),
        "schema" => Some(("flowschemas", name, parse_flow_schema(words)?)),
        _ => None,
    }
}

fn parse_priority_level(words: &str) -> Option<Value> {
    let words: Vec<&str> = words.split(' ').collect();
    let number = |name: &str| words.chunks(2).find(|pair| pair[0] == name)?.get(1)?.parse::<i64>().ok();
    let response = match (number("queues"), number("hand"), number("length")) {
        (Some(queues), Some(hand), Some(length)) => {
            json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}})
        }
        _ => json!({"type": "Reject"}),
    };
    Some(json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": number("shares")?, "lendablePercent": number("lend")?, "limitResponse": response,
    }}))
}

fn parse_flow_schema(words: &str) -> Option<Value> {
    let (words, subjects) = words.split_once(": ")?;
    let words: Vec<&str> = words.split(' ').collect();
    let word = |name: &str| words.chunks(2).find(|pair| pair[0] == name)?.get(1).copied();
    let subjects: Option<Vec<Value>> = subjects.split(' ').map(parse_subject).collect();
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": word("to")?}, "matchingPrecedence": word("at")?.parse::<i64>().ok()?,
        "rules": [{"subjects": subjects?}],
    });
    if let Some(method) = word("by") {
        spec["distinguisherMethod"] = json!({"type": method});
    }
    Some(spec)
}

fn parse_subject(text: &str) -> Option<Value> {
    Some(match lines::parse_subject(text)? {
        ("ServiceAccount", namespace, name) => {
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
        }
        (kind, _, name) => json!({"kind": kind, kind.to_lowercase(): {"name": name}}),
    })
}

fn add_rule(rules: &mut Value, rule: &TableRule<'_>) {
    let (field, object) = match rule {
        TableRule::NonResource(verbs, paths) => (
            "nonResourceRules",
            json!({"verbs": lines::parse_list(verbs), "nonResourceURLs": lines::parse_list(paths)}),
        ),
        TableRule::Resource(verbs, groups, resources, words) => {
            let mut object = json!({
                "verbs": lines::parse_list(verbs), "apiGroups": lines::parse_list(groups), "resources": lines::parse_list(resources),
                "namespaces": ["*"],
            });
            if words.contains(&"cluster") {
                object["clusterScope"] = true.into();
            }
            ("resourceRules", object)
        }
    };
    match rules[field].as_array_mut() {
        Some(list) => list.push(object),
        None => rules[field] = json!([object]),
    }
}

#[cfg(test)]
mod tests {
    use api::meta;

    use super::*;

    #[test]
    fn bootstrap_table_is_parsed() {
        let objects = bootstrap_objects().unwrap();
        let find = |name: &str, kind: &str| {
            let found = objects.iter().find(|(resource, object)| resource.name == kind && meta::name(object) == name);
            found.unwrap().1["spec"].clone()
        };
        assert_eq!(
            find("node-high", "prioritylevelconfigurations")["limited"]["limitResponse"]["queuing"]["queues"],
            64
        );
        assert_eq!(
            find("catch-all", "prioritylevelconfigurations")["limited"]["limitResponse"],
            json!({"type": "Reject"})
        );
        let nodes = find("system-node-high", "flowschemas");
        assert_eq!(nodes["rules"][0]["resourceRules"][0]["clusterScope"], true);
        assert!(nodes["rules"][0]["resourceRules"][1].get("clusterScope").is_none());
        assert_eq!(nodes["distinguisherMethod"]["type"], "ByUser");
        assert_eq!(objects.len(), 19);
    }
}
