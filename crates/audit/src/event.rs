//! Events of `audit.k8s.io/v1`.

use std::net::{IpAddr, SocketAddr};

use api::{Map, Value};
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget},
};
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::json;

use super::Level;

/// Longer user agents are truncated.
const MAX_USER_AGENT_LENGTH: usize = 1024;
const TRUNCATION_MARK: &str = "...TRUNCATED";

/// The parts of a request that its event contains beyond the attributes.
pub struct AuditedRequest<'a> {
    /// Audit ID.
    pub id: &'a str,
    /// Path and query.
    pub uri: &'a str,
    /// Source IPs.
    pub sources: Vec<String>,
    /// User agent.
    pub agent: &'a str,
    /// Time of receipt.
    pub received: Timestamp,
}

/// Returns the event of a request at its start.
pub fn event_from_request(level: Level, request: &AuditedRequest<'_>, attributes: &Attributes<'_>) -> Value {
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": level.as_str(), "auditID": request.id,
        "stage": "RequestReceived", "requestURI": request.uri, "verb": attributes.verb, "user": user_info(attributes.user),
        "requestReceivedTimestamp": api::time::format_micros(request.received),
    });
    if !request.sources.is_empty() {
        event["sourceIPs"] = json!(request.sources);
    }
    if !request.agent.is_empty() {
        event["userAgent"] = truncate_user_agent(request.agent).into();
    }
    if let AttributesTarget::Resource(resource) = &attributes.target {
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
pub fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    let mut put = |name: &str, value: Value| drop(info.insert(name.to_owned(), value));
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
    Value::Object(info)
}

fn truncate_user_agent(text: &str) -> String {
    if text.len() <= MAX_USER_AGENT_LENGTH {
        return text.to_owned();
    }
    let end = (0..=MAX_USER_AGENT_LENGTH - TRUNCATION_MARK.len())
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or_default();
    format!("{}{TRUNCATION_MARK}", &text[..end])
}

/// Returns the source IPs: forwarded addresses, then the peer.
pub fn source_ips(headers: &HeaderMap, peer: Option<SocketAddr>) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded = text("x-forwarded-for").split(',').filter_map(|ip| ip.trim().parse::<IpAddr>().ok());
    let mut found: Vec<IpAddr> = forwarded.collect();
    let real = text("x-real-ip").trim().parse::<IpAddr>().ok().filter(|ip| !found.contains(ip));
    found.extend(real);
    let peer = peer.map(|peer| peer.ip()).filter(|ip| found.last() != Some(ip));
    found.extend(peer);
    found.iter().map(IpAddr::to_string).collect()
}
