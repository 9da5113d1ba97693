//! Clients that watch: what they hear is of the life that they began to watch in, in order, and whole; a watch ends, and never
//! with a fault.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http_body_util::BodyExt;
use serde_json::Value;

use super::clock::Clock;
use crate::custom::world::{BOATS, World};

/// Maximum duration of a watch without events.
const PATIENCE: Duration = Duration::from_secs(60);

/// Watches until there are no more lives; how often.
pub async fn run(world: World, clock: Arc<Clock>, number: usize) -> usize {
    let (mut turns, mut after) = (0, String::new());
    while !clock.is_over() || turns == 0 {
        let path = match number % 3 {
            0 => format!("{BOATS}?watch=true&timeoutSeconds=1"),
            1 => format!(
                "{BOATS}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&\
                 resourceVersionMatch=NotOlderThan"
            ),
            _ => format!("{BOATS}?watch=true&timeoutSeconds=1&resourceVersion={after}"),
        };
        // What exists is told in the order of names.
        let resumed = number % 3 == 2 && !after.is_empty();
        let (span, events) = clock.span(heard(&world, &path)).await;
        let (first, last) = span.rounds();
        let mut lives: HashMap<String, &Value> = HashMap::new();
        let mut revision = 0;
        for event in &events {
            let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
            match kind {
                "ADDED" | "MODIFIED" | "DELETED" => {
                    let round = object["spec"]["round"].as_u64().unwrap_or(u64::MAX) as usize;
                    assert!((first..=last).contains(&round), "{span:?} {path}: of another life: {event}");
                    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                    let before = lives.insert(uid, &event["type"]);
                    match (before.and_then(|before| before.as_str()), kind) {
                        (None | Some("ADDED" | "MODIFIED"), "MODIFIED" | "DELETED") | (None, "ADDED") => {}
                        (before, now) => panic!("{now} after {before:?}: {event}"),
                    }
                }
                "BOOKMARK" => {}
                // What it needs is not there any more.
                "ERROR" => assert_eq!(object["code"], 410, "{span:?} {path}: {event}"),
                // The path is not there.
                "" => assert_eq!(event, "404 page not found\n", "{span:?} {path}"),
                _ => panic!("{span:?} {path}: {event}"),
            }
            let now =
                object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(revision);
            assert!(now >= revision || !resumed, "{span:?} {path}: not in order: {event}");
            revision = now.max(revision);
        }
        after = if revision > 0 { revision.to_string() } else { after };
        turns += 1;
    }
    turns
}

/// Everything that a watch says, or what is said instead.
pub async fn heard(world: &World, path: &str) -> Vec<Value> {
    let body = world.watch(path).await;
    let bytes = tokio::time::timeout(PATIENCE, body.collect()).await.expect("a watch ends").unwrap().to_bytes();
    let read = |line: &[u8]| {
        serde_json::from_slice(line).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into())
    };
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(read).collect()
}
