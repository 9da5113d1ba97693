//! DefaultTolerationSeconds: adds `tolerationSeconds` for the not-ready and unreachable taints to pods without them.

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "DefaultTolerationSeconds",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object("", "pods", Operation::WRITES)],
    construct: |init| {
        let (not_ready, unreachable) = init.toleration_seconds.unwrap_or((SECONDS, SECONDS));
        Ok(Box::new(DefaultTolerationSeconds([
            ("node.kubernetes.io/not-ready", not_ready),
            ("node.kubernetes.io/unreachable", unreachable),
        ])))
    },
};

const SECONDS: i64 = 300;
const NO_EXECUTE: &str = "NoExecute";

/// Taint keys with their toleration seconds.
struct DefaultTolerationSeconds([(&'static str, i64); 2]);

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    async fn admit(&self, _: &AdmissionAttributes<'_>, pod: &mut Value) -> Result<(), Status> {
        let borne = meta::list_at(pod, &["spec", "tolerations"]);
        let is_borne = |taint: &str| {
            borne.iter().any(|toleration| {
                let (key, effect) = (meta::string_at(toleration, &["key"]), meta::string_at(toleration, &["effect"]));
                (key == taint || key.is_empty()) && (effect == NO_EXECUTE || effect.is_empty())
            })
        };
        let missing: Vec<Value> = self.0.iter().filter(|(taint, _)| !is_borne(taint)).map(new_toleration).collect();
        if !missing.is_empty() {
            let list = meta::field_mut(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
            list.as_array_mut().into_iter().for_each(|list| list.extend(missing.clone()));
        }
        Ok(())
    }
}

fn new_toleration((taint, seconds): &(&'static str, i64)) -> Value {
    json!({"key": taint, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": seconds})
}
