//! Clients that create, change and delete objects so that they move in and out of selections.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::{
    stress::{SEED, watcher::Scope},
    wire::{Client, Wire},
};

/// The namespaces of objects.
pub const NAMESPACES: &[&str] = &["one", "two", "three"];
/// The values of the label `group`.
pub const GROUPS: &[&str] = &["red", "green", "blue"];
/// The phases of pods.
pub const PHASES: &[&str] = &["Pending", "Running", "Failed"];
/// The number of names in each namespace; few, so that writers conflict.
const NAMES: usize = 24;
const MERGE: &str = "application/merge-patch+json";

/// Creates the namespaces.
pub async fn namespaces(client: &Client) {
    for name in NAMESPACES {
        let (status, answer) = client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        assert_eq!(status, 201, "{answer}");
    }
}

/// Tries so many writes and returns how many were made; others that meet the same object may come first.
pub async fn run(wire: Arc<Wire>, index: usize, writes: usize) -> usize {
    let client = wire.client().await;
    let mut random = fastrand::Rng::with_seed(SEED.rotate_left(7) + index as u64);
    let mut made = 0;
    let mut number = 0;
    while made < writes && number < writes * 10 {
        number += 1;
        let label = format!("{index}-{number}");
        let status = if random.u8(..3) == 0 {
            pod(&client, &mut random, &label).await
        } else {
            map(&client, &mut random, &label).await
        };
        match status {
            200 | 201 => made += 1,
            404 | 409 => {}
            status => panic!("a write was answered with {status}"),
        }
    }
    made
}

fn metadata(name: &str, group: &str, write: &str) -> Value {
    json!({"name": name, "labels": {"group": group}, "annotations": {"write": write}})
}

async fn map(client: &Client, random: &mut fastrand::Rng, write: &str) -> u16 {
    let namespace = NAMESPACES[random.usize(..NAMESPACES.len())];
    let group = GROUPS[random.usize(..GROUPS.len())];
    let name = format!("c-{}", random.usize(..NAMES));
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let item = format!("{path}/{name}");
    let object = json!({"metadata": metadata(&name, group, write), "data": {"write": write}});
    match random.u8(..8) {
        0..3 => client.post(&path, &object).await.0,
        3 => client.delete(&item).await.0,
        4 => client.put(&item, &object).await.0,
        _ => client.send(Method::PATCH, &item, MERGE, &object).await.0,
    }
}

async fn pod(client: &Client, random: &mut fastrand::Rng, write: &str) -> u16 {
    let namespace = NAMESPACES[random.usize(..NAMESPACES.len())];
    let group = GROUPS[random.usize(..GROUPS.len())];
    let name = format!("p-{}", random.usize(..NAMES));
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let item = format!("{path}/{name}");
    let metadata = metadata(&name, group, write);
    match random.u8(..6) {
        0 | 1 => client.post(&path, &new_pod(metadata)).await.0,
        2 => client.delete(&format!("{item}?gracePeriodSeconds=0")).await.0,
        3 => client.send(Method::PATCH, &item, MERGE, &json!({"metadata": metadata})).await.0,
        _ => {
            let phase = PHASES[random.usize(..PHASES.len())];
            let status = json!({"metadata": {"annotations": {"write": write}}, "status": {"phase": phase}});
            client.send(Method::PATCH, &format!("{item}/status"), MERGE, &status).await.0
        }
    }
}

fn new_pod(metadata: Value) -> Value {
    json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// For each watcher an object in its selection that it knows for its end.
pub async fn ends(client: &Client, scopes: &[Scope]) {
    for scope in scopes {
        let namespace = scope.namespace.unwrap_or(NAMESPACES[0]);
        let path = format!("/api/v1/namespaces/{namespace}/{}", scope.resource);
        let name = scope.name.clone().unwrap_or_else(|| format!("end-{}", scope.index));
        let item = format!("{path}/{name}");
        let mut metadata = metadata(&name, scope.group.unwrap_or("none"), &format!("end-{}", scope.index));
        if scope.name.is_some() {
            // The name may be taken: free it first. It may not be, too.
            client.delete(&item).await;
        }
        if scope.phase.is_none() {
            metadata["labels"]["end"] = scope.index.to_string().into();
        }
        let object = if scope.resource == "pods" { new_pod(metadata) } else { json!({"metadata": metadata}) };
        let (status, answer) = client.post(&path, &object).await;
        assert_eq!(status, 201, "{answer}");
        if let Some(phase) = scope.phase {
            let (status, answer) = finish(client, &item, scope.index, phase).await;
            assert_eq!(status, 200, "{answer}");
        }
    }
}

/// The phase first, then the label: the watcher sees the object change, whatever phase it began with.
async fn finish(client: &Client, item: &str, index: usize, phase: &str) -> (u16, Value) {
    let (status, answer) =
        client.send(Method::PATCH, &format!("{item}/status"), MERGE, &json!({"status": {"phase": phase}})).await;
    assert_eq!(status, 200, "{answer}");
    let label = json!({"metadata": {"labels": {"end": index.to_string()}}});
    client.send(Method::PATCH, item, MERGE, &label).await
}
