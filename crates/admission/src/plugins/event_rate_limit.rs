//! EventRateLimit: limits the rate of event writes per server, namespace, user, or source and object.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, PluginError, ResourceRule};

const SIZE: usize = 4096;

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "EventRateLimit",
    enabled_by_default: false,
    rules: &[
        ResourceRule::for_object("", "events", Operation::WRITES),
        ResourceRule::for_object("events.k8s.io", "events", Operation::WRITES),
    ],
    construct: |init| {
        let limits = init.config.map(|config| meta::list_at(config, &["limits"]).to_vec()).unwrap_or_default();
        if limits.is_empty() {
            return Err("limits: Invalid value: {}: must be specified".into());
        }
        Ok(Box::new(EventRateLimit(limits.iter().map(LimitEnforcer::from_config).collect::<Result<_, _>>()?)))
    },
};

struct EventRateLimit(Vec<LimitEnforcer>);

/// One configured limit: token buckets by key.
struct LimitEnforcer {
    kind: String,
    rate: f64,
    burst: f64,
    size: usize,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl LimitEnforcer {
    fn from_config(config: &Value) -> Result<Self, PluginError> {
        let kind = meta::string_at(config, &["type"]).to_owned();
        if !["Server", "Namespace", "User", "SourceAndObject"].contains(&kind.as_str()) {
            return Err(format!("unknown event rate limit type: {kind}").into());
        }
        let (rate, burst) = (meta::integer_at(config, &["qps"]), meta::integer_at(config, &["burst"]));
        if rate <= 0 || burst <= 0 {
            return Err("limits: qps and burst must be positive".into());
        }
        let size =
            usize::try_from(meta::integer_at(config, &["cacheSize"])).ok().filter(|size| *size > 0).unwrap_or(SIZE);
        Ok(Self { kind, rate: rate as f64, burst: burst as f64, size, buckets: Mutex::default() })
    }

    fn bucket_key(&self, attributes: &AdmissionAttributes<'_>, event: &Value) -> String {
        let text = |path: &[&str]| meta::string_at(event, path);
        match self.kind.as_str() {
            "Namespace" => attributes.namespace().to_owned(),
            "User" => attributes.user().name.clone(),
            "SourceAndObject" => [
                text(&["source", "component"]),
                text(&["source", "host"]),
                text(&["involvedObject", "kind"]),
                text(&["involvedObject", "namespace"]),
                text(&["involvedObject", "name"]),
                text(&["involvedObject", "uid"]),
                text(&["involvedObject", "apiVersion"]),
            ]
            .concat(),
            _ => String::new(),
        }
    }

    /// Takes a token from the key's bucket, if available.
    fn try_accept(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= self.size && !buckets.contains_key(key) {
            // Evicts the least recently used bucket, which refills first.
            let oldest = buckets.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| key.clone());
            oldest.map(|oldest| buckets.remove(&oldest));
        }
        let (tokens, at) = buckets.get(key).copied().unwrap_or((self.burst, now));
        let tokens = (tokens + now.duration_since(at).as_secs_f64() * self.rate).min(self.burst);
        let accepted = tokens >= 1.0;
        buckets.insert(key.to_owned(), (if accepted { tokens - 1.0 } else { tokens }, now));
        accepted
    }
}

#[async_trait]
impl Plugin for EventRateLimit {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        !attributes.dry_run
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, event: &Value) -> Result<(), Status> {
        let mut reached = Vec::new();
        for limit in &self.0 {
            let key = limit.bucket_key(attributes, event);
            if !limit.try_accept(&key, Instant::now()) {
                reached.push(format!("limit reached on type {} for key {key}", limit.kind));
            }
        }
        if reached.is_empty() {
            return Ok(());
        }
        let message = if reached.len() == 1 { reached.remove(0) } else { format!("[{}]", reached.join(", ")) };
        let details = Some(json!({"retryAfterSeconds": 1}));
        Err(Status { code: 429, reason: "TooManyRequests", message, details, continue_token: None })
    }
}
