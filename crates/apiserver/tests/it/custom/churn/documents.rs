//! Clients that read what the server says of its API: boats are in it while they are served, as they are, and else not.

use std::sync::Arc;

use serde_json::Value;

use super::clock::{Clock, Span};
use crate::custom::world::World;

/// Looks at an answer.
type Judge = fn(Span, u16, &Value);

/// Reads a document until there are no more lives; how often.
pub async fn run(world: World, clock: Arc<Clock>, number: usize) -> usize {
    const DOCUMENTS: [(&str, Judge); 6] = [
        ("/apis/harbour.example.io", group),
        ("/apis/harbour.example.io/v2", newer),
        ("/apis", groups),
        ("/openapi/v3", index),
        ("/openapi/v3/apis/harbour.example.io/v1", described),
        ("/openapi/v2", swagger),
    ];
    let (path, judge) = DOCUMENTS[number % DOCUMENTS.len()];
    let mut turns = 0;
    while !clock.is_over() || turns == 0 {
        let (span, (code, body)) = clock.span(world.get(path)).await;
        judge(span, code, &body);
        turns += 1;
    }
    turns
}

/// The expected presence of a document.
fn wanted(span: Span, there: bool, what: &str) {
    assert!(there || span.alive().is_none(), "{span:?}: {what} is missing");
    assert!(!there || !span.gone(), "{span:?}: {what} is left");
}

fn only_after_the_change(span: Span, there: bool, what: &str) {
    assert!(there || span.second().is_none(), "{span:?}: {what} is missing");
    assert!(!there || !span.gone() && span.first().is_none(), "{span:?}: {what} is too early or left");
}

fn group(span: Span, code: u16, body: &Value) {
    assert!(code == 200 && body["kind"] == "APIGroup" || code == 404, "{span:?} {code} {body}");
    wanted(span, code == 200, "the group");
    let versions = body["versions"].as_array().map_or(0, Vec::len);
    only_after_the_change(span, versions == 2, "the second version");
}

fn newer(span: Span, code: u16, body: &Value) {
    assert!(code == 200 && body["resources"][0]["name"] == "boats" || code == 404, "{span:?} {code} {body}");
    only_after_the_change(span, code == 200, "the second version");
}

fn groups(span: Span, code: u16, body: &Value) {
    assert_eq!((code, &body["kind"]), (200, &"APIGroupList".into()), "{span:?} {body}");
    let mut names = body["groups"].as_array().unwrap().iter().map(|group| &group["name"]);
    wanted(span, names.any(|name| name == "harbour.example.io"), "the group in the list");
}

fn index(span: Span, code: u16, body: &Value) {
    assert_eq!(code, 200, "{span:?} {body}");
    wanted(span, body["paths"].get("apis/harbour.example.io/v1").is_some(), "the first version");
    only_after_the_change(span, body["paths"].get("apis/harbour.example.io/v2").is_some(), "the second version");
}

const MODEL: &str = "io.example.harbour.v1.Boat";

fn described(span: Span, code: u16, body: &Value) {
    assert!(code == 200 || code == 404, "{span:?} {code} {body}");
    wanted(span, code == 200, "the document");
    let fields = &body["components"]["schemas"][MODEL]["properties"]["spec"]["properties"];
    assert!(code == 404 || fields["size"]["type"] == "integer", "{span:?} {body}");
    only_after_the_change(span, fields.get("hold").is_some(), "the new field");
}

fn swagger(span: Span, code: u16, body: &Value) {
    assert_eq!(code, 200, "{span:?}");
    let fields = &body["definitions"][MODEL]["properties"]["spec"]["properties"];
    wanted(span, fields.get("size").is_some(), "the model");
    only_after_the_change(span, fields.get("hold").is_some(), "the new field");
}
