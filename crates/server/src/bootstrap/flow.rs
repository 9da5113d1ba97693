//! The priority levels and flow schemas of a fresh cluster, read from `flow.txt`. Those whose annotation says so are
//! brought back to what the table says; the others belong to administrators.

use api::{Value, meta, schema::Resource, status::Status};
use serde_json::json;

use super::lines::{self, Rule, unreadable};
use crate::{
    clock,
    registry::Registry,
    system::{self, Place, System},
};

const TABLE: &str = include_str!("flow.txt");
const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The specifications of the table: resource and object. Levels come before schemas.
pub fn objects() -> Result<Vec<(&'static Resource, Value)>, Status> {
    let mut objects: Vec<(&Resource, Value)> = Vec::new();
    for line in lines::of(TABLE) {
        match lines::rule(line) {
            Some(rule) => {
                let (_, schema) = objects.last_mut().ok_or_else(|| unreadable(line))?;
                add_rule(&mut schema["spec"]["rules"][0], &rule);
            }
            None => {
                let (resource, name, spec) = header(line).ok_or_else(|| unreadable(line))?;
                let metadata = json!({"name": name, "annotations": {AUTO_UPDATE: "true"}});
                let resource = system::resource(GROUP, "v1", resource)?;
                objects.push((resource, json!({"metadata": metadata, "spec": spec})));
            }
        }
    }
    Ok(objects)
}

fn header(line: &'static str) -> Option<(&'static str, &'static str, Value)> {
    let (kind, rest) = line.split_once(' ')?;
    let (name, words) = rest.split_once(' ').unwrap_or((rest, ""));
    match kind {
        "exempt" => {
            let spec = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
            Some(("prioritylevelconfigurations", name, spec))
        }
        "level" => Some(("prioritylevelconfigurations", name, level(words)?)),
        "schema" => Some(("flowschemas", name, schema(words)?)),
        _ => None,
    }
}

fn level(words: &str) -> Option<Value> {
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

fn schema(words: &str) -> Option<Value> {
    let (words, subjects) = words.split_once(": ")?;
    let words: Vec<&str> = words.split(' ').collect();
    let word = |name: &str| words.chunks(2).find(|pair| pair[0] == name)?.get(1).copied();
    let subjects: Option<Vec<Value>> = subjects.split(' ').map(subject).collect();
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": word("to")?}, "matchingPrecedence": word("at")?.parse::<i64>().ok()?,
        "rules": [{"subjects": subjects?}],
    });
    if let Some(method) = word("by") {
        spec["distinguisherMethod"] = json!({"type": method});
    }
    Some(spec)
}

fn subject(text: &str) -> Option<Value> {
    Some(match lines::subject(text)? {
        ("ServiceAccount", namespace, name) => {
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
        }
        (kind, _, name) => json!({"kind": kind, kind.to_lowercase(): {"name": name}}),
    })
}

fn add_rule(rules: &mut Value, rule: &Rule<'_>) {
    let (field, object) = match rule {
        Rule::Paths(verbs, paths) => {
            ("nonResourceRules", json!({"verbs": lines::list(verbs), "nonResourceURLs": lines::list(paths)}))
        }
        Rule::Resources(verbs, groups, resources, words) => {
            let mut object = json!({
                "verbs": lines::list(verbs), "apiGroups": lines::list(groups), "resources": lines::list(resources),
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

/// Creates an object that is missing or brings it back, and says of a schema that its level exists.
pub async fn reconcile(registry: &Registry, resource: &'static Resource, object: Value) -> Result<(), Status> {
    let object = &object;
    let producer = System::named(registry, PRODUCER);
    let place = Place { resource, namespace: "", name: meta::name(object) };
    match producer.read(place).await? {
        None => {
            super::create_missing(producer, place, object).await?;
        }
        Some(mut current) if current["metadata"]["annotations"][AUTO_UPDATE] == "true" => {
            if current["spec"] != object["spec"] {
                current["spec"] = object["spec"].clone();
                producer.update(place, &current).await?;
            }
        }
        Some(_) => {}
    }
    if resource.name == "flowschemas" { not_dangling(registry, place, object).await } else { Ok(()) }
}

async fn not_dangling(registry: &Registry, place: Place<'_>, schema: &Value) -> Result<(), Status> {
    let consumer = System::named(registry, CONSUMER);
    let current = consumer.read(place).await?.unwrap_or_default();
    if !meta::list(&current, &["status", "conditions"]).is_empty() {
        return Ok(());
    }
    let level = meta::text(schema, &["spec", "priorityLevelConfiguration", "name"]);
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists");
    let condition = json!({"type": "Dangling", "status": "False", "reason": "Found", "message": message,
        "lastTransitionTime": clock::seconds()});
    let status = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": lines::metadata(place.name), "status": {"conditions": [condition]}});
    consumer.apply_status(place, &status).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_it_means() {
        let objects = objects().unwrap();
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
