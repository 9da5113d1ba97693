//! A definition that is created, changed and deleted in a loop under many clients that use it: every answer is true of a moment
//! between question and answer, and nothing of a definition is left when it is gone.
//!
//! A clock ([`clock`]) says in which stage of its life the definition is. Who asks while it stays in one stage knows exactly what
//! it must be told; who asks across stages must be told what is true in one of them.

#[path = "churn/clients.rs"]
mod clients;
#[path = "churn/clock.rs"]
mod clock;
#[path = "churn/documents.rs"]
mod documents;
#[path = "churn/judge.rs"]
mod judge;
#[path = "churn/watchers.rs"]
mod watchers;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::clock::{Clock, Stage};
use crate::custom::world::{BOATS, BOATS_DEFINITION, DEFINITIONS, World, boat, definition};

const CLIENTS: usize = 48;
const WATCHERS: usize = 10;
const READERS: usize = 6;
const ROUNDS: usize = 8;

const NEWER: &str = "/apis/harbour.example.io/v2/namespaces/default/boats";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_true_while_a_definition_comes_and_goes() {
    let world = World::new().await;
    let idle = settled(&world).await;
    rounds(&world).await;
    let once = settled(&world).await;
    assert_eq!(once.documents, idle.documents, "what is told of the API is what it was");
    rounds(&world).await;
    let twice = settled(&world).await;
    assert_eq!(twice, once, "what is kept does not grow with the definitions that were");
}

#[tokio::test]
async fn who_watches_hears_of_the_objects_that_go_with_their_definition() {
    const COUNT: usize = 30;
    let world = World::new().await;
    world.create(DEFINITIONS, first(0)).await;
    for number in 0..COUNT {
        world.create(BOATS, boat(&format!("b{number}"), json!({}))).await;
    }
    let listening: Vec<_> = (0..20)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move { watchers::heard(&world, &format!("{BOATS}?watch=true")).await })
        })
        .collect();
    world.until("/metrics", |_, text| text.as_str().is_some_and(|text| watching(text) == 20)).await;
    assert_eq!(world.delete(BOATS_DEFINITION).await.0, 200);
    for one in listening {
        let events = one.await.unwrap();
        let kinds = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!((kinds("ADDED"), kinds("DELETED"), events.len()), (COUNT, COUNT, 2 * COUNT));
    }
}

/// The number of watches of boats.
fn watching(metrics: &str) -> usize {
    let lines = metrics.lines().filter(|line| line.starts_with("apiserver_longrunning_requests{"));
    let numbers = lines.filter(|line| line.contains("harbour")).filter_map(|line| line.rsplit(' ').next());
    numbers.filter_map(|number| number.parse::<usize>().ok()).sum()
}

#[tokio::test]
async fn what_was_before_a_definition_is_not_of_it() {
    let world = World::new().await;
    world.create(DEFINITIONS, first(0)).await;
    let before = world.create(BOATS, boat("b", json!({}))).await;
    let before = before["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(world.delete(BOATS_DEFINITION).await.0, 200);
    world.until(BOATS_DEFINITION, |code, _| code == 404).await;
    world.create(DEFINITIONS, first(1)).await;
    let heard = watchers::heard(&world, &format!("{BOATS}?watch=true&resourceVersion={before}")).await;
    assert_eq!((heard.len(), &heard[0]["object"]["reason"]), (1, &json!("Expired")), "{heard:?}");
    let exact = format!("{BOATS}?resourceVersion={before}&resourceVersionMatch=Exact");
    let (code, answer) = world.get(&exact).await;
    assert_eq!((code, &answer["reason"]), (410, &json!("Expired")), "{answer}");
    // A change of the definition does not take away what was before it.
    let now = world.create(BOATS, boat("b", json!({}))).await;
    let now = now["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(world.patch(BOATS_DEFINITION, &second(1)).await.0, 200);
    let exact = format!("{BOATS}?resourceVersion={now}&resourceVersionMatch=Exact");
    assert_eq!(world.get(&exact).await.1["items"].as_array().map(Vec::len), Some(1));
}

/// A life after the other, under clients.
async fn rounds(world: &World) {
    let clock = Arc::new(Clock::default());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(clients::run(world.clone(), clock.clone(), number));
    }
    for number in 0..WATCHERS {
        clients.spawn(watchers::run(world.clone(), clock.clone(), number));
    }
    for number in 0..READERS {
        clients.spawn(documents::run(world.clone(), clock.clone(), number));
    }
    for round in 0..ROUNDS {
        tokio::select! {
            () = life(world, &clock, round) => {}
            // A client that ends before its time has found a fault.
            Some(client) = clients.join_next() => drop(client.unwrap()),
        }
    }
    clock.stop();
    while let Some(client) = clients.join_next().await {
        let turns = client.unwrap();
        assert!(turns > 0, "every client had a turn");
    }
}

/// The definition of a round; what is created while it lives says so.
fn first(round: usize) -> Value {
    definition("boats", "Boat", json!([version("v1", true, round, json!({}))]))
}

/// The same after the change: another version, another default, columns and a field to select by.
fn second(round: usize) -> Value {
    let more = json!({"hold": {"type": "integer", "default": round}});
    let mut versions = [version("v1", true, round, more.clone()), version("v2", false, round, more)];
    for version in &mut versions {
        version["additionalPrinterColumns"] = json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
        version["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    }
    json!({"spec": {"versions": versions}})
}

fn version(name: &str, storage: bool, round: usize, more: Value) -> Value {
    let mut fields =
        json!({"size": {"type": "integer", "maximum": 100}, "round": {"type": "integer", "default": round}});
    for (name, schema) in more.as_object().into_iter().flatten() {
        fields[name] = schema.clone();
    }
    let spec = json!({"type": "object", "default": {}, "properties": fields});
    crate::custom::world::version(name, storage, spec)
}

async fn life(world: &World, clock: &Clock, round: usize) {
    clock.set(round, Stage::Creating);
    world.create(DEFINITIONS, first(round)).await;
    world.until(BOATS, |code, _| code == 200).await;
    clock.set(round, Stage::Alive);
    world.create(BOATS, boat(&format!("own-{round}"), json!({"size": 15}))).await;
    clock.pause().await;
    clock.set(round, Stage::Changing);
    let (code, answer) = world.patch(BOATS_DEFINITION, &second(round)).await;
    assert_eq!(code, 200, "round {round}: {answer}");
    clock.set(round, Stage::Changed);
    assert_eq!(world.get(&format!("{NEWER}/own-{round}")).await.1["spec"]["hold"], round);
    clock.pause().await;
    clock.set(round, Stage::Deleting);
    assert_eq!(world.delete(BOATS_DEFINITION).await.0, 200);
    world.until(BOATS_DEFINITION, |code, _| code == 404).await;
    // Who reads the store may know of it before who serves it does.
    world.until(BOATS, |code, _| code == 404).await;
    clock.set(round, Stage::Gone);
    clock.pause().await;
}

/// State of an idle server.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    tasks: usize,
    documents: Vec<Value>,
    series: Vec<String>,
}

async fn settled(world: &World) -> Kept {
    const DOCUMENTS: [&str; 4] = ["/apis", "/openapi/v3", "/openapi/v2", "/apis/apiregistration.k8s.io/v1/apiservices"];
    world.until("/apis/apiregistration.k8s.io/v1/apiservices/v1.harbour.example.io", |code, _| code == 404).await;
    world.until("/apis/apiregistration.k8s.io/v1/apiservices/v2.harbour.example.io", |code, _| code == 404).await;
    let mut documents = Vec::new();
    for path in DOCUMENTS {
        let (_, mut document) = world.get(path).await;
        if let Some(list) = document.get_mut("metadata") {
            *list = Value::Null;
        }
        documents.push(document);
    }
    let (_, metrics) = world.get("/metrics").await;
    let lines = metrics.as_str().unwrap_or_default().lines().filter(|line| !line.starts_with('#'));
    // Which status codes were seen depends on timing.
    let without_code = |(name, _): (&str, &str)| {
        let (before, after) = name.split_once("code=\"").unwrap_or((name, ""));
        format!("{before}{}", after.split_once('"').map_or("", |(_, rest)| rest))
    };
    let series = lines.filter_map(|line| line.rsplit_once(' ')).map(without_code);
    let mut series: Vec<String> = series.filter(|name| name.contains("harbour")).collect();
    series.sort();
    series.dedup();
    let tasks = tasks().await;
    Kept { tasks, documents, series }
}

/// The number of tasks after short ones have ended.
async fn tasks() -> usize {
    let metrics = tokio::runtime::Handle::current().metrics();
    let mut least = usize::MAX;
    for _ in 0..200 {
        least = least.min(metrics.num_alive_tasks());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    least
}
