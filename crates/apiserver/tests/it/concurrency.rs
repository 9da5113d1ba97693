//! Many clients at one object: whatever they do at the same time ends as if they had done it one after the other.
//!
//! Every client has an HTTP/2 connection of its own to a server on loopback.

use crate::fixture;
use std::{collections::BTreeSet, future::Future, sync::Arc};

use crate::wire::{Client, JSON, Wire};
use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const CLIENTS: usize = 64;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Runs one task per client, all at once, and returns what each came to.
async fn together<T, F>(wire: &Wire, task: impl Fn(usize, Client) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let clients = join_all((0..CLIENTS).map(|_| wire.client())).await;
    let start = Arc::new(tokio::sync::Barrier::new(CLIENTS));
    let tasks = clients.into_iter().enumerate().map(|(index, client)| {
        let (task, start) = (task(index, client), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            task.await
        })
    });
    join_all(tasks).await.into_iter().map(|ended| ended.expect("no client fails")).collect()
}

/// Reads an object, changes it and writes it back until nobody came in between; returns how often that took.
async fn change(client: &Client, path: &str, change: impl Fn(&mut Value)) -> usize {
    let mut tries = 0;
    loop {
        tries += 1;
        let (status, mut object) = client.get(path).await;
        assert_eq!(status, 200, "{object}");
        change(&mut object);
        match client.put(path, &object).await {
            (200, _) => return tries,
            (409, error) => assert_eq!(error["reason"], "Conflict", "{error}"),
            (status, error) => panic!("{status}: {error}"),
        }
    }
}

/// Whether each change of a key made or ended the object, oldest first.
async fn history(wire: &Wire, key: &str) -> Vec<(bool, bool)> {
    let now = wire.store.revision().await.unwrap();
    // Nothing tells the end of a history but the next change, so one is made.
    let end = store::WriteRequest {
        key: "/end".into(),
        precondition: store::Precondition::Absent,
        value: Some("{}".into()),
        ttl: None,
    };
    let last = wire.store.write(end).await.unwrap();
    assert!(last > now);
    let events = wire.store.watch("/", 0).await.unwrap().map(|event| event.expect("history is there"));
    let events = events.take_while(|event| std::future::ready(event.revision < last));
    let events = events.filter(|event| std::future::ready(&*event.key == key));
    events.map(|event| (event.previous.is_some(), event.value.is_some())).collect().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_increment_is_lost() {
    const EACH: usize = 2;
    let wire = Wire::start().await;
    let path = format!("{MAPS}/n");
    let (status, _) = wire.client().await.post(MAPS, &json!({"metadata": {"name": "n"}, "data": {"n": "0"}})).await;
    assert_eq!(status, 201);
    let tries = together(&wire, |_, client| {
        let path = path.clone();
        async move {
            let mut tries = 0;
            for _ in 0..EACH {
                let add = |map: &mut Value| {
                    let n: usize = map["data"]["n"].as_str().expect("a number").parse().expect("a number");
                    map["data"]["n"] = (n + 1).to_string().into();
                };
                tries += change(&client, &path, add).await;
            }
            tries
        }
    });
    let tries: usize = tries.await.into_iter().sum();
    let (_, map) = wire.client().await.get(&path).await;
    assert_eq!(map["data"]["n"], (CLIENTS * EACH).to_string());
    let writes = history(&wire, "/registry/configmaps/default/n").await.len();
    assert_eq!(writes, 1 + CLIENTS * EACH, "each increment is one write, whatever the {tries} tries were");
}

/// Every create that succeeded made the object and every delete that succeeded ended it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn creates_and_deletes_race_to_one_state() {
    const ROUNDS: usize = 10;
    let wire = Wire::start().await;
    let path = format!("{MAPS}/x");
    let outcomes = together(&wire, |index, client| {
        let path = path.clone();
        async move {
            let mut succeeded = 0;
            for _ in 0..ROUNDS {
                let (status, answer) = match index % 2 {
                    0 => client.post(MAPS, &json!({"metadata": {"name": "x"}})).await,
                    _ => client.delete(&path).await,
                };
                match (index % 2, status) {
                    (0, 201) | (1, 200) => succeeded += 1,
                    (0, 409) => assert_eq!(answer["reason"], "AlreadyExists", "{answer}"),
                    (1, 404) => assert_eq!(answer["reason"], "NotFound", "{answer}"),
                    _ => panic!("{status}: {answer}"),
                }
            }
            (index % 2, succeeded)
        }
    });
    let outcomes: Vec<(usize, usize)> = outcomes.await;
    let count = |kind: usize| outcomes.iter().filter(|(k, _)| *k == kind).map(|(_, n)| n).sum::<usize>();
    let (created, deleted) = (count(0), count(1));
    let exists = wire.client().await.get(&path).await.0 == 200;
    assert_eq!(created - deleted, usize::from(exists), "{created} created, {deleted} deleted");
    let history = history(&wire, "/registry/configmaps/default/x").await;
    assert_eq!(history.len(), created + deleted);
    for (step, change) in history.into_iter().enumerate() {
        let expected = if step % 2 == 0 { (false, true) } else { (true, false) };
        assert_eq!(change, expected, "a create follows a delete at step {step}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_deletes_of_the_same_object_succeeds() {
    let wire = Wire::start().await;
    let (_, map) = wire.client().await.post(MAPS, &json!({"metadata": {"name": "once"}})).await;
    let body = json!({"preconditions": {"uid": map["metadata"]["uid"]}});
    let statuses = together(&wire, |_, client| {
        let body = body.clone();
        async move { client.send(Method::DELETE, &format!("{MAPS}/once"), JSON, &body).await.0 }
    });
    let statuses = statuses.await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 404).count(), CLIENTS - 1, "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_applied_fields_land() {
    const APPLY: &str = "application/apply-patch+yaml";
    let wire = Wire::start().await;
    together(&wire, |index, client| async move {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"},
            "data": {format!("key-{index}"): index.to_string()}});
        let path = format!("{MAPS}/shared?fieldManager=manager-{index}");
        loop {
            match client.send(Method::PATCH, &path, APPLY, &map).await {
                (200 | 201, _) => break,
                // Whoever loses against too many others is told to try again.
                (409, error) => {
                    assert!(error["reason"] != "Invalid" && error["details"]["causes"].is_null(), "{error}")
                }
                (status, error) => panic!("{status}: {error}"),
            }
        }
    })
    .await;
    let (_, map) = wire.client().await.get(&format!("{MAPS}/shared")).await;
    let managed = map["metadata"]["managedFields"].as_array().expect("managed fields");
    assert_eq!(managed.len(), CLIENTS, "every manager owns its field");
    for index in 0..CLIENTS {
        let key = format!("key-{index}");
        assert_eq!(map["data"][&key], index.to_string());
        let entry = managed.iter().find(|entry| entry["manager"] == format!("manager-{index}")).expect("an entry");
        assert_eq!(entry["fieldsV1"], json!({"f:data": {format!("f:{key}"): {}}}));
        assert_eq!(entry["operation"], "Apply");
    }
}

/// The object ends with its last finalizer, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn finalizers_are_removed_by_those_who_own_them() {
    let wire = Wire::start().await;
    let path = format!("{MAPS}/held");
    let finalizers: Vec<String> = (0..CLIENTS).map(|index| format!("example.io/holder-{index}")).collect();
    let client = wire.client().await;
    client.post(MAPS, &json!({"metadata": {"name": "held", "finalizers": finalizers}})).await;
    let (status, map) = client.delete(&path).await;
    assert_eq!(status, 200, "{map}");
    assert!(map["metadata"]["deletionTimestamp"].is_string(), "{map}");
    together(&wire, |index, client| {
        let path = path.clone();
        async move {
            let mine = format!("example.io/holder-{index}");
            let remove = |map: &mut Value| {
                let finalizers = map["metadata"]["finalizers"].as_array_mut().expect("finalizers");
                assert!(finalizers.iter().any(|name| *name == mine), "nobody else removes {mine}");
                finalizers.retain(|name| *name != mine);
            };
            change(&client, &path, remove).await
        }
    })
    .await;
    assert_eq!(client.get(&path).await.0, 404);
    let history = history(&wire, "/registry/configmaps/default/held").await;
    assert_eq!(history.iter().filter(|(_, is)| !is).count(), 1, "it was deleted once");
    let (status, map) = client.post(MAPS, &json!({"metadata": {"name": "held"}})).await;
    assert_eq!((status, map["metadata"].get("deletionTimestamp")), (201, None), "the name is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pod_is_bound_once() {
    let wire = Wire::start().await;
    let admin = wire.client().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (status, answer) = admin.post(PODS, &pod).await;
    assert_eq!(status, 201, "{answer}");
    let bound = together(&wire, |index, client| async move {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
            "target": {"kind": "Node", "name": format!("node-{index}")}});
        let (status, answer) = client.post(&format!("{PODS}/p/binding"), &binding).await;
        assert!(status == 201 || (status == 409 && answer["reason"] == "Conflict"), "{status}: {answer}");
        (status == 201).then(|| format!("node-{index}"))
    });
    let bound: Vec<String> = bound.await.into_iter().flatten().collect();
    let (_, pod) = admin.get(&format!("{PODS}/p")).await;
    assert_eq!(bound, [pod["spec"]["nodeName"].as_str().expect("a node")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn generated_names_are_distinct() {
    const EACH: usize = 5;
    let wire = Wire::start().await;
    let names = together(&wire, |_, client| async move {
        let mut names = Vec::new();
        for _ in 0..EACH {
            let (status, map) = client.post(MAPS, &json!({"metadata": {"generateName": "many-"}})).await;
            assert_eq!(status, 201, "{map}");
            names.push(map["metadata"]["name"].as_str().expect("a name").to_owned());
        }
        names
    });
    let names: BTreeSet<String> = names.await.into_iter().flatten().collect();
    assert_eq!(names.len(), CLIENTS * EACH);
}

/// A name that is taken already is drawn again; which names are drawn is fixed by the seed of this thread.
#[tokio::test]
async fn a_generated_name_that_is_taken_is_drawn_again() {
    let (server, _dir) = fixture::server().await;
    let create = || async {
        let body = json!({"metadata": {"generateName": "drawn-"}}).to_string();
        let request = Request::post(MAPS).header("content-type", JSON).body(Full::new(Bytes::from(body))).unwrap();
        let response = server.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let map: Value = serde_json::from_slice(&body).unwrap();
        (status, map["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    };
    let mut names = BTreeSet::new();
    for round in 0..4 {
        fastrand::seed(7);
        let (status, name) = create().await;
        assert_eq!(status, 201, "the names of {round} rounds before are taken");
        assert!(names.insert(name));
    }
}

/// The services of many clients, as they were answered.
async fn create_services(wire: &Wire, service: impl Fn(usize) -> Value + Clone + Send + 'static) -> Vec<(u16, Value)> {
    together(wire, |index, client| {
        let service = service.clone();
        async move { client.post(SERVICES, &service(index)).await }
    })
    .await
}

fn node_port_service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "selector": {"a": "b"}, "ports": [{"port": 80}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn services_get_addresses_and_ports_of_their_own() {
    let wire = Wire::start().await;
    let answers = create_services(&wire, |index| node_port_service(&format!("s-{index}"))).await;
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for (status, service) in &answers {
        assert_eq!(*status, 201, "{service}");
        let address: std::net::Ipv4Addr = service["spec"]["clusterIP"].as_str().expect("an address").parse().unwrap();
        assert_eq!(address.octets()[..2], [10, 96], "it is in the range of services");
        assert_eq!(service["spec"]["clusterIPs"], json!([address.to_string()]));
        let port = service["spec"]["ports"][0]["nodePort"].as_u64().expect("a port");
        assert!((30000..=32767).contains(&port), "{port}");
        assert!(addresses.insert(address), "{address} is given twice");
        assert!(ports.insert(port), "{port} is given twice");
    }
    let (_, list) = wire.client().await.get(SERVICES).await;
    let kubernetes = list["items"].as_array().expect("items").iter().find(|s| s["metadata"]["name"] == "kubernetes");
    let kubernetes = kubernetes.expect("the API's own")["spec"]["clusterIP"].as_str().expect("an address");
    assert!(!addresses.contains(&kubernetes.parse().unwrap()), "{kubernetes} is the API's own");
}

/// One of those who ask for the same address gets it, and the others are told; so it is with ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_address_or_port_that_is_asked_for_is_given_once() {
    let wire = Wire::start().await;
    let asks: [fn(&mut Value); 2] = [
        |service| service["spec"]["clusterIP"] = "10.96.77.7".into(),
        |service| service["spec"]["ports"][0]["nodePort"] = 30_777.into(),
    ];
    for (round, ask) in asks.into_iter().enumerate() {
        let answers = create_services(&wire, move |index| {
            let mut service = node_port_service(&format!("s-{round}-{index}"));
            ask(&mut service);
            service
        });
        let answers = answers.await;
        assert_eq!(answers.iter().filter(|(status, _)| *status == 201).count(), 1, "round {round}");
        for (status, error) in answers.iter().filter(|(status, _)| *status != 201) {
            assert_eq!((*status, error["reason"].as_str()), (422, Some("Invalid")), "{error}");
            assert!(error["message"].as_str().is_some_and(|text| text.contains("already allocated")), "{error}");
        }
    }
}

/// Values of a deleted service can be allocated again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn addresses_and_ports_are_given_back() {
    let wire = Wire::start().await;
    let (client, mut service) = (wire.client().await, node_port_service("again"));
    let (status, first) = client.post(SERVICES, &service).await;
    assert_eq!(status, 201, "{first}");
    assert_eq!(client.delete(&format!("{SERVICES}/again")).await.0, 200);
    service["spec"]["clusterIP"] = first["spec"]["clusterIP"].clone();
    service["spec"]["ports"][0]["nodePort"] = first["spec"]["ports"][0]["nodePort"].clone();
    let (status, second) = client.post(SERVICES, &service).await;
    assert_eq!(status, 201, "{second}");
    assert_eq!(second["spec"]["clusterIP"], first["spec"]["clusterIP"]);
}
