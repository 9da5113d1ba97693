//! The cost of validation rules: the same objects are created with rules and without.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::{
    definitions::establish,
    side::{ReportRow, ServerSide, create},
};

/// Concurrent clients.
const CLIENTS: usize = 8;
/// Rules per schema.
const RULES: usize = 50;

/// Rules as projects write them; each is there several times, with another number.
const KINDS: &[&str] = &[
    "self.replicas <= self.limit + N",
    "!has(self.paused) || self.replicas >= 0 || N < 0",
    "self.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.name) < 63 + N",
    "self.ports.all(port, port.number > 0 && port.number < 65536 + N)",
    "self.ports.exists_one(port, port.name == 'http') || self.replicas > N",
    "self.ports.map(port, port.number).sum() >= N",
    "self.mode in ['Always', 'Never', 'Sometimes'] || self.replicas == N",
    "self.labels.all(key, key.startsWith('app') || size(self.labels[key]) > N - 100)",
    "duration(self.timeout) <= duration('1h') && self.limit > -N",
    "quantity(self.memory).isGreaterThan(quantity('1Mi')) || self.replicas > N",
];

/// Measures the cost of creating an object with rules and without.
pub async fn measure(side: &mut ServerSide<'_>, objects: usize) -> anyhow::Result<Vec<ReportRow>> {
    let plain = costs(side, "plain", json!([]), objects).await?;
    let ruled = costs(side, "ruled", rules(), objects).await?;
    Ok(vec![
        ReportRow::new("create an object without rules: CPU", "µs", plain),
        ReportRow::new(&format!("create an object with {RULES} rules: CPU"), "µs", ruled),
        ReportRow::new(&format!("{RULES} rules of an object: CPU"), "µs", ruled - plain),
    ])
}

/// Microseconds of CPU for an object of a kind with these rules.
async fn costs(side: &mut ServerSide<'_>, plural: &str, rules: Value, objects: usize) -> anyhow::Result<f64> {
    establish(side, &[definition(plural, rules)]).await?;
    // Programs and connections are there before it counts.
    created(side, plural, "warm", CLIENTS * 20).await?;
    side.settled().await?;
    let before = side.used()?.cpu;
    created(side, plural, "it", objects).await?;
    Ok((side.used()?.cpu - before) * 1e6 / objects as f64)
}

async fn created(side: &ServerSide<'_>, plural: &str, prefix: &str, objects: usize) -> anyhow::Result<()> {
    let (path, next) = (format!("/apis/bench.example.com/v1/namespaces/default/{plural}"), AtomicUsize::new(0));
    let (path, next) = (&path, &next);
    let clients = side.clients(CLIENTS).await?.into_iter().map(async |mut client| {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= objects {
                return anyhow::Ok(());
            }
            create(&mut client, path, object(plural, &format!("{prefix}-{n}")).to_string().into()).await?;
        }
    });
    try_join_all(clients).await.map(drop)
}

fn rules() -> Value {
    let rule = |n: usize| {
        let rule = KINDS[n % KINDS.len()].replace('N', &(n / KINDS.len()).to_string());
        json!({"rule": rule, "message": format!("rule {n} does not hold")})
    };
    (0..RULES).map(rule).collect()
}

fn definition(plural: &str, rules: Value) -> Value {
    let text = json!({"type": "string", "maxLength": 63});
    let port = json!({"type": "object", "properties": {"name": text, "number": {"type": "integer"}}});
    let mut spec = json!({"type": "object", "required": ["name"], "properties": {
        "name": text, "mode": text, "timeout": text, "memory": text,
        "replicas": {"type": "integer"}, "limit": {"type": "integer"}, "paused": {"type": "boolean"},
        "ports": {"type": "array", "maxItems": 8, "items": port},
        "labels": {"type": "object", "maxProperties": 8, "additionalProperties": text},
    }});
    if rules.as_array().is_some_and(|rules| !rules.is_empty()) {
        spec["x-kubernetes-validations"] = rules;
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.example.com")},
        "spec": {"group": "bench.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind(plural)},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

fn object(plural: &str, name: &str) -> Value {
    json!({"apiVersion": "bench.example.com/v1", "kind": kind(plural), "metadata": {"name": name}, "spec": {
        "name": "web-server", "mode": "Always", "timeout": "30s", "memory": "64Mi", "replicas": 3, "limit": 10, "paused": false,
        "ports": [{"name": "http", "number": 80}, {"name": "https", "number": 443}, {"name": "metrics", "number": 9090}],
        "labels": {"app": "web", "app.kubernetes.io/part-of": "shop", "tier": "front"},
    }})
}

fn kind(plural: &str) -> &'static str {
    if plural == "ruled" { "Ruled" } else { "Plain" }
}
