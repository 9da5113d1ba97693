//! Events of `audit.k8s.io/v1`.

use std::net::{IpAddr, SocketAddr};

use api::{Map, Value};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget},
};
use http::HeaderMap;
use serde_json::json;

use super::{Level, audit_context::Request};

/// Longer user agents are truncated.
const MAX_AGENT: usize = 1024;
const CUT: &str = "...TRUNCATED";

/// Returns the event of a request at its start.
pub fn begun(level: Level, request: &Request<'_>, asked: &Attributes<'_>) -> Value {
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": level.name(), "auditID": request.id,
        "stage": "RequestReceived", "requestURI": request.uri, "verb": asked.verb, "user": user(asked.user),
        "requestReceivedTimestamp": api::time::format_micros(request.received),
    });
    if !request.sources.is_empty() {
        event["sourceIPs"] = json!(request.sources);
    }
    if !request.agent.is_empty() {
        event["userAgent"] = agent(request.agent).into();
    }
    if let AttributesTarget::Resource(resource) = &asked.target {
        let fields = [
            ("resource", resource.resource),
            ("namespace", resource.namespace),
            ("name", resource.name),
            ("apiGroup", resource.group),
            ("apiVersion", resource.version),
            ("subresource", resource.subresource),
        ];
        let given = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let reference: Map = given.map(|(name, value)| (name.to_owned(), value.into())).collect();
        event["objectRef"] = Value::Object(reference);
    }
    event
}

/// Returns the user info of an event.
pub fn user(user: &User) -> Value {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| drop(shown.insert(name.to_owned(), value));
    if !user.name.is_empty() {
        put("username", user.name.as_str().into());
    }
    if !user.uid.is_empty() {
        put("uid", user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        put("groups", json!(user.groups));
    }
    if !user.extra.is_empty() {
        put("extra", json!(user.extra));
    }
    Value::Object(shown)
}

fn agent(text: &str) -> String {
    if text.len() <= MAX_AGENT {
        return text.to_owned();
    }
    let end = (0..=MAX_AGENT - CUT.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{CUT}", &text[..end])
}

/// Returns the source IPs: forwarded addresses, then the peer.
pub fn sources(headers: &HeaderMap, peer: Option<SocketAddr>) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded = text("x-forwarded-for").split(',').filter_map(|ip| ip.trim().parse::<IpAddr>().ok());
    let mut found: Vec<IpAddr> = forwarded.collect();
    let real = text("x-real-ip").trim().parse::<IpAddr>().ok().filter(|ip| !found.contains(ip));
    found.extend(real);
    let peer = peer.map(|peer| peer.ip()).filter(|ip| found.last() != Some(ip));
    found.extend(peer);
    found.iter().map(IpAddr::to_string).collect()
}
