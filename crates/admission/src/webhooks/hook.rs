//! One webhook of a configuration, read into what is needed to decide whether and how to call it.

use std::{sync::Arc, time::Duration};

use api::{Value, meta, selector::LabelSelector};
use apiserver_core::webhook::{WebhookAddress, tls_config_for_bundle, webhook_address};
use expressions::admission::Conditions;
use rustls::ClientConfig;

/// A webhook.
pub struct Hook {
    /// Its own name, as messages have it.
    pub name: String,
    /// The configuration that it is of.
    pub configuration: String,
    /// Which it is, among all.
    pub id: String,
    /// What it is asked about.
    pub rules: Vec<Value>,
    /// Whether rules for other versions count too.
    pub equivalent: bool,
    /// Which namespaces' objects; an error is one that every request is told.
    pub namespaces: Result<LabelSelector, String>,
    /// Which objects.
    pub objects: Result<LabelSelector, String>,
    /// Expressions that must all be true.
    pub conditions: Conditions,
    /// Whether a webhook that cannot be asked is left out.
    pub ignores_failure: bool,
    /// Whether it may be asked about what is not going to happen.
    pub dry_run: bool,
    /// Whether it is asked again when others change what it has seen.
    pub again: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// The first known version of reviews that it takes.
    pub review: Option<&'static str>,
    /// Where it is.
    pub place: WebhookAddress,
    /// How it is trusted; an error is told to whoever would be asked about.
    pub tls: Result<Arc<ClientConfig>, String>,
}

/// The webhooks of a configuration.
pub fn of(configuration: &Value) -> Vec<Arc<Hook>> {
    let hooks = meta::list_at(configuration, &["webhooks"]).iter().enumerate();
    hooks.map(|(at, hook)| Arc::new(read(meta::name(configuration), at, hook))).collect()
}

fn read(configuration: &str, at: usize, hook: &Value) -> Hook {
    let text = |field: &str| meta::string_at(hook, &[field]);
    let selector = |field: &str| {
        let selector =
            hook.get(field).filter(|selector| !selector.is_null()).cloned().unwrap_or_else(|| serde_json::json!({}));
        LabelSelector::from_object(&selector).map_err(|error| error.to_string())
    };
    let seconds = meta::value_at(hook, &["timeoutSeconds"]).and_then(Value::as_u64).unwrap_or(10);
    let mut versions = meta::list_at(hook, &["admissionReviewVersions"]).iter().filter_map(Value::as_str);
    Hook {
        name: text("name").to_owned(),
        configuration: configuration.to_owned(),
        id: format!("{configuration}/{at}/{}", text("name")),
        rules: meta::list_at(hook, &["rules"]).to_vec(),
        equivalent: text("matchPolicy") != "Exact",
        namespaces: selector("namespaceSelector"),
        objects: selector("objectSelector"),
        conditions: Conditions::of_webhook(meta::list_at(hook, &["matchConditions"])),
        ignores_failure: text("failurePolicy") == "Ignore",
        dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        again: text("reinvocationPolicy") == "IfNeeded",
        timeout: Duration::from_secs(seconds),
        review: versions.find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| *known == version)),
        place: webhook_address(&hook["clientConfig"]),
        tls: tls_config_for_bundle(meta::string_at(hook, &["clientConfig", "caBundle"])),
    }
}
