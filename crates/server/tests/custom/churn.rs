//! A definition that is created, changed and deleted in a loop under many clients that use it: whatever they are told is true of
//! some moment, and nothing of a definition is left when it is gone.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use crate::world::{BOATS, BOATS_DEFINITION, DEFINITIONS, World, boat, boats};

const CLIENTS: usize = 64;
const ROUNDS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_true_while_a_definition_comes_and_goes() {
    let world = World::new().await;
    let (over, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (world, over, answers) = (world.clone(), over.clone(), answers.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    use_boats(&world, number).await;
                    answers.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for round in 0..ROUNDS {
        life(&world, round).await;
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert!(answers.load(Ordering::Relaxed) > CLIENTS, "the clients had their turns");
    world.create(DEFINITIONS, boats(schema(1))).await;
    assert_eq!(world.get(BOATS).await.1["items"], json!([]), "nothing of before is left");
}

fn schema(most: usize) -> Value {
    json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": most},
        "round": {"type": "integer", "default": most}}})
}

async fn life(world: &World, round: usize) {
    world.create(DEFINITIONS, boats(schema(10))).await;
    let names = json!({"type": "object", "properties": {"spec": schema(20)}});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": names}}]);
    let (code, answer) = world.patch(BOATS_DEFINITION, &json!({"spec": {"versions": versions}})).await;
    assert_eq!(code, 200, "round {round}: {answer}");
    world.create(BOATS, boat(&format!("own-{round}"), json!({"size": 15}))).await;
    assert_eq!(world.get(&format!("{BOATS}/own-{round}")).await.1["spec"]["round"], 20);
    assert_eq!(world.delete(BOATS_DEFINITION).await.0, 200);
    world.until(BOATS_DEFINITION, |code, _| code == 404).await;
}

/// Creates, reads, lists and deletes an object; every answer must make sense.
async fn use_boats(world: &World, number: usize) {
    let name = format!("b{number}");
    let (code, answer) = world.post(BOATS, &boat(&name, json!({"size": 5}))).await;
    let spec = &answer["spec"];
    match code {
        201 => assert!(spec["round"] == 10 || spec["round"] == 20, "{answer}"),
        // It is not there, it is there already, or it is about to go.
        404 | 409 | 403 => {}
        other => panic!("{other}: {answer}"),
    }
    let (code, answer) = world.get(&format!("{BOATS}/{name}")).await;
    match code {
        200 => assert_eq!(answer["spec"]["size"], 5, "{answer}"),
        404 => {}
        other => panic!("{other}: {answer}"),
    }
    let (code, answer) = world.get(BOATS).await;
    assert!(code == 404 || code == 200 && answer["kind"] == "BoatList", "{code}: {answer}");
    let (code, answer) = world.delete(&format!("{BOATS}/{name}")).await;
    assert!(code == 404 || code == 200 || code == 409, "{code}: {answer}");
}
