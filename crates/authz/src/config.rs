//! `AuthorizationConfiguration`: the file that lists the authorizers.
//!
//! It is decoded strictly and validated as a whole; all errors are reported at once, in upstream's words.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc, time::Duration};

use api::{
    Value, duration,
    validate::{FieldError, names},
    yaml,
};
use apiserver_core::http_client;
use serde::Deserialize;

use super::{
    AbacPolicies, aggregate_errors,
    webhook::{FailurePolicy, ReviewVersion, WebhookConfig, conditions},
};
use crate::AuthorizationMode;

const GROUP: &str = "apiserver.config.k8s.io";
const KIND: &str = "AuthorizationConfiguration";
/// The authorizer types, as messages list them.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];

/// An invalid authorization configuration.
#[derive(Debug, thiserror::Error)]
pub enum AuthorizationConfigError {
    /// The file cannot be decoded.
    #[error("failed to load AuthorizationConfiguration from file: {0}")]
    Load(String),
    /// The configuration is invalid.
    #[error("{0}")]
    Wrong(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigurationFile {
    #[serde(rename = "apiVersion")]
    _version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    authorizers: Vec<AuthorizerFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthorizerFields {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: String,
    webhook: Option<WebhookFields>,
}

/// The webhook fields of an authorizer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WebhookFields {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: String,
    cache_authorized_requests: bool,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: String,
    cache_unauthorized_requests: bool,
    timeout: String,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionFields,
    match_conditions: Vec<conditions::MatchCondition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConnectionFields {
    #[serde(rename = "type")]
    kind: String,
    kube_config_file: Option<String>,
}

impl Default for WebhookFields {
    fn default() -> Self {
        Self {
            authorized_ttl: "5m".into(),
            cache_authorized_requests: true,
            unauthorized_ttl: "30s".into(),
            cache_unauthorized_requests: true,
            timeout: String::new(),
            subject_access_review_version: String::new(),
            match_condition_subject_access_review_version: String::new(),
            failure_policy: String::new(),
            connection_info: ConnectionFields::default(),
            match_conditions: Vec::new(),
        }
    }
}

/// Parses a configuration into modes; `policies` are those of ABAC.
pub fn parse_configuration(
    text: &str,
    policies: Option<&AbacPolicies>,
) -> Result<Vec<AuthorizationMode>, AuthorizationConfigError> {
    let configuration = decode_configuration(text)?;
    let (mut modes, mut errors) = (Vec::new(), Vec::new());
    if configuration.authorizers.is_empty() {
        errors.push(FieldError::required("authorizers", "at least one authorization mode must be defined"));
    }
    let (mut types, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (index, authorizer) in configuration.authorizers.iter().enumerate() {
        let field = format!("authorizers[{index}]");
        if let Some(error) = validate_type(authorizer, &field, &mut types) {
            errors.push(error);
            continue;
        }
        errors.extend(validate_name(authorizer, &field, &mut names));
        modes.extend(build_mode(authorizer, &field, policies, &mut errors));
    }
    match aggregate_errors(
        errors.iter().map(ToString::to_string).chain(validate_type_names(&configuration.authorizers, &errors)),
    ) {
        Some(errors) => Err(AuthorizationConfigError::Wrong(errors)),
        None => Ok(modes),
    }
}

fn decode_configuration(text: &str) -> Result<ConfigurationFile, AuthorizationConfigError> {
    let value = yaml::parse(text.as_bytes()).map_err(|error| AuthorizationConfigError::Load(error.to_string()))?.value;
    let named = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (named("apiVersion"), named("kind"));
    let known = version.strip_prefix(GROUP).is_some_and(|rest| matches!(rest, "/v1" | "/v1beta1" | "/v1alpha1"));
    if !known || kind != KIND {
        let why = format!("no kind {kind:?} is registered for version {version:?}");
        return Err(AuthorizationConfigError::Load(why));
    }
    serde_json::from_value(value)
        .map_err(|error| AuthorizationConfigError::Load(format!("strict decoding error: {error}")))
}

fn validate_type<'a>(
    authorizer: &'a AuthorizerFields,
    field: &str,
    seen: &mut BTreeSet<&'a str>,
) -> Option<FieldError> {
    let field = format!("{field}.type");
    match authorizer.kind.as_str() {
        "" => Some(FieldError::required(field, "")),
        kind if !TYPES.contains(&kind) => Some(FieldError::not_supported(field, kind, &TYPES)),
        kind if !seen.insert(kind) && kind != "Webhook" => Some(FieldError::duplicate(field, kind)),
        _ => None,
    }
}

fn validate_name<'a>(
    authorizer: &'a AuthorizerFields,
    field: &str,
    seen: &mut BTreeSet<&'a str>,
) -> Option<FieldError> {
    let field = format!("{field}.name");
    let name = authorizer.name.as_str();
    if name.is_empty() {
        return Some(FieldError::required(field, ""));
    }
    if !seen.insert(name) {
        return Some(FieldError::duplicate(field, name));
    }
    let wrong = names::check_dns_subdomain(name);
    let why = format!("authorizer name is invalid: {}", wrong.join(", "));
    (!wrong.is_empty()).then(|| FieldError::invalid(field, name, why))
}

/// Requires other authorizers than webhooks to be named after their type; reported only without other errors.
fn validate_type_names(links: &[AuthorizerFields], errors: &[FieldError]) -> Vec<String> {
    let others = links.iter().filter(|authorizer| errors.is_empty() && authorizer.kind != "Webhook");
    let wrong = others.filter(|authorizer| authorizer.kind.to_lowercase() != authorizer.name);
    wrong
        .map(|AuthorizerFields { kind, name, .. }| {
            format!("expected name {} for authorizer {kind} instead of {name}", kind.to_lowercase())
        })
        .collect()
}

fn build_mode(
    authorizer: &AuthorizerFields,
    field: &str,
    policies: Option<&AbacPolicies>,
    errors: &mut Vec<FieldError>,
) -> Option<AuthorizationMode> {
    if authorizer.kind != "Webhook" && authorizer.webhook.is_some() {
        let why = "may only be specified when type=Webhook";
        errors.push(FieldError::invalid(format!("{field}.webhook"), "non-null", why));
    }
    match (authorizer.kind.as_str(), &authorizer.webhook) {
        ("Webhook", None) => {
            errors.push(FieldError::required(format!("{field}.webhook"), "required when type=Webhook"));
            None
        }
        ("Webhook", Some(fields)) => fields.build_webhook(field, errors).map(AuthorizationMode::Webhook),
        (name, _) => match AuthorizationMode::from_name(name, policies) {
            Some(mode) => Some(mode),
            None => {
                errors.push(FieldError::required(format!("{field}.type"), "ABAC needs --authorization-policy-file"));
                None
            }
        },
    }
}

impl AuthorizationMode {
    /// Returns the mode of a name, if it needs nothing but a name and ABAC policies.
    pub fn from_name(name: &str, policies: Option<&AbacPolicies>) -> Option<Self> {
        Some(match name {
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
            "RBAC" => AuthorizationMode::Rbac,
            "Node" => AuthorizationMode::Node,
            "ABAC" => AuthorizationMode::Abac(policies?.clone()),
            _ => return None,
        })
    }
}

impl WebhookFields {
    /// Returns the webhook, or adds errors.
    fn build_webhook(&self, field: &str, errors: &mut Vec<FieldError>) -> Option<WebhookConfig> {
        let before = errors.len();
        let timeout = parse_positive_duration(&self.timeout, &format!("{field}.timeout"), Some(30), errors);
        let allowed_for =
            parse_positive_duration(&self.authorized_ttl, &format!("{field}.authorizedTTL"), None, errors);
        let refused_for =
            parse_positive_duration(&self.unauthorized_ttl, &format!("{field}.unauthorizedTTL"), None, errors);
        let version = self.review_version(field, errors);
        let failure = self.parse_failure_policy(field, errors);
        let endpoint = self.connection_info.load_endpoint(field, errors);
        let conditions = conditions::compile_conditions(&self.match_conditions, field, errors);
        if errors.len() > before {
            return None;
        }
        let kept = |cached: bool, time: Duration| if cached { time } else { Duration::ZERO };
        Some(WebhookConfig {
            allowed_for: kept(self.cache_authorized_requests, allowed_for?),
            refused_for: kept(self.cache_unauthorized_requests, refused_for?),
            timeout: timeout?,
            failure: failure?,
            conditions: Arc::new(conditions),
            ..WebhookConfig::new(endpoint?, version?)
        })
    }

    fn review_version(&self, field: &str, errors: &mut Vec<FieldError>) -> Option<ReviewVersion> {
        let conditions = format!("{field}.matchConditionSubjectAccessReviewVersion");
        match self.match_condition_subject_access_review_version.as_str() {
            "" if self.match_conditions.is_empty() => {}
            "" => errors.push(FieldError::required(conditions, "required if match conditions are specified")),
            "v1" => {}
            other => errors.push(FieldError::not_supported(conditions, other, &["v1"])),
        }
        let field = format!("{field}.subjectAccessReviewVersion");
        match self.subject_access_review_version.as_str() {
            "v1" => return Some(ReviewVersion::V1),
            "v1beta1" => return Some(ReviewVersion::V1Beta1),
            "" => errors.push(FieldError::required(field, "")),
            other => errors.push(FieldError::not_supported(field, other, &["v1", "v1beta1"])),
        }
        None
    }

    fn parse_failure_policy(&self, field: &str, errors: &mut Vec<FieldError>) -> Option<FailurePolicy> {
        let field = format!("{field}.failurePolicy");
        match self.failure_policy.as_str() {
            "NoOpinion" => return Some(FailurePolicy::NoOpinion),
            "Deny" => return Some(FailurePolicy::Deny),
            "" => errors.push(FieldError::required(field, "")),
            other => errors.push(FieldError::not_supported(field, other, &["NoOpinion", "Deny"])),
        }
        None
    }
}

/// Parses a positive duration of at most `most` seconds.
fn parse_positive_duration(
    text: &str,
    field: &str,
    most: Option<i64>,
    errors: &mut Vec<FieldError>,
) -> Option<Duration> {
    let nanos = match duration::try_parse(if text.is_empty() { "0" } else { text }) {
        Ok(nanos) => nanos,
        Err(why) => {
            errors.push(FieldError::invalid(field, text, why.0));
            return None;
        }
    };
    if nanos == 0 {
        errors.push(FieldError::required(field, ""));
        return None;
    }
    if nanos < 0 || most.is_some_and(|most| nanos > most * 1_000_000_000) {
        let why = if most.is_some() { "must be > 0s and <= 30s" } else { "must be > 0s" };
        errors.push(FieldError::invalid(field, duration::format(nanos), why));
        return None;
    }
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

impl ConnectionFields {
    fn load_endpoint(&self, field: &str, errors: &mut Vec<FieldError>) -> Option<http_client::Endpoint> {
        let (kind, file_field) =
            (format!("{field}.connectionInfo.type"), format!("{field}.connectionInfo.kubeConfigFile"));
        let file = self.kube_config_file.as_deref().unwrap_or_default();
        let error = match self.kind.as_str() {
            "" => FieldError::required(kind, ""),
            "InClusterConfig" if self.kube_config_file.is_some() => {
                FieldError::invalid(file_field, file, "can only be set when type=KubeConfigFile")
            }
            "InClusterConfig" => {
                FieldError::invalid(kind, "InClusterConfig", "is not supported: this server is no pod")
            }
            "KubeConfigFile" if file.is_empty() => FieldError::required(file_field, ""),
            "KubeConfigFile" if !Path::new(file).is_absolute() => {
                FieldError::invalid(file_field, file, "must be an absolute path")
            }
            "KubeConfigFile" => match fs::metadata(file).map(|found| found.is_file()) {
                Err(error) => FieldError::invalid(file_field, file, format!("error loading file: {error}")),
                Ok(false) => FieldError::invalid(file_field, file, "must be a regular file"),
                Ok(true) => match http_client::endpoint_from_kubeconfig(Path::new(file)) {
                    Ok(endpoint) => return Some(endpoint),
                    Err(error) => FieldError::invalid(file_field, file, error.to_string()),
                },
            },
            other => FieldError::not_supported(kind, other, &["InClusterConfig", "KubeConfigFile"]),
        };
        errors.push(error);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";
    const GOOD: &str = "timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny";

    fn assert_parsed(links: &str, want: Result<&str, &str>) {
        let text = if links.contains("apiVersion") { links.to_owned() } else { format!("{HEAD}{links}") };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hook");
        let hook = "current-context: x\ncontexts: [{name: x, context: {cluster: x}}]\nclusters: [{name: x, cluster: {server: \
                    \"https://127.0.0.1:1/\"}}]\n";
        fs::write(&file, hook).unwrap();
        let text = text.replace("HOOK", &file.display().to_string());
        let got = parse_configuration(&text, None);
        let got = got.map(|modes| {
            let names = modes.iter().map(|mode| match mode {
                AuthorizationMode::Webhook(webhook) => {
                    format!("{:?} {:?} {:?}", webhook.failure, webhook.timeout, webhook.refused_for)
                }
                mode => format!("{mode:?}"),
            });
            names.collect::<Vec<_>>().join(", ")
        });
        let got = got.map_err(|error| error.to_string().replace(&file.display().to_string(), "HOOK"));
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{links}");
    }

    fn webhook_entry(more: &str) -> String {
        format!("- {{type: Webhook, name: hook, webhook: {{{more}}}}}")
    }

    #[test]
    fn configurations_are_parsed() {
        assert_parsed("- {type: Node, name: node}\n- {type: RBAC, name: rbac}", Ok("Node, Rbac"));
        assert_parsed("- {type: AlwaysAllow, name: alwaysallow}", Ok("AlwaysAllow"));
        let connection = "connectionInfo: {type: KubeConfigFile, kubeConfigFile: HOOK}";
        assert_parsed(&webhook_entry(&format!("{GOOD}, {connection}")), Ok("Deny 3s 30s"));
        assert_parsed(
            &webhook_entry(&format!("{GOOD}, cacheUnauthorizedRequests: false, {connection}")),
            Ok("Deny 3s 0ns"),
        );
        let two = format!("{}\n{}", webhook_entry(&format!("{GOOD}, {connection}")), "- {type: RBAC, name: rbac}");
        assert_parsed(&two, Ok("Deny 3s 30s, Rbac"));
    }

    #[test]
    fn errors_name_their_field() {
        assert_parsed("  []", Err("authorizers: Required value: at least one authorization mode must be defined"));
        assert_parsed("- {name: x}", Err("authorizers[0].type: Required value"));
        assert_parsed(
            "- {type: Rbac, name: rbac}",
            Err(
                "authorizers[0].type: Unsupported value: \"Rbac\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \
                 \"Node\", \"RBAC\", \"Webhook\"",
            ),
        );
        assert_parsed(
            "- {type: RBAC, name: rbac}\n- {type: RBAC, name: other}",
            Err("authorizers[1].type: Duplicate value: \"RBAC\""),
        );
        assert_parsed("- {type: RBAC}", Err("authorizers[0].name: Required value"));
        assert_parsed("- {type: RBAC, name: roles}", Err("expected name rbac for authorizer RBAC instead of roles"));
        assert_parsed(
            "- {type: RBAC, name: rbac, webhook: {}}",
            Err("authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook"),
        );
        assert_parsed(
            "- {type: Webhook, name: x}",
            Err("authorizers[0].webhook: Required value: required when type=Webhook"),
        );
        assert_parsed(
            &webhook_entry(""),
            Err("[authorizers[0].timeout: Required value, authorizers[0].subjectAccessReviewVersion: Required value, \
                 authorizers[0].failurePolicy: Required value, authorizers[0].connectionInfo.type: Required value]"),
        );
        let bad = |more: &str| webhook_entry(&format!("{GOOD}, connectionInfo: {{{more}}}"));
        assert_parsed(
            &bad("type: KubeConfigFile"),
            Err("authorizers[0].connectionInfo.kubeConfigFile: Required value"),
        );
        assert_parsed(
            &bad("type: KubeConfigFile, kubeConfigFile: x"),
            Err("authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"x\": must be an absolute path"),
        );
        assert_parsed(
            &webhook_entry(
                "timeout: 1m, subjectAccessReviewVersion: v2, failurePolicy: Maybe, connectionInfo: {type: KubeConfigFile, \
                   kubeConfigFile: HOOK}",
            ),
            Err("[authorizers[0].timeout: Invalid value: \"1m0s\": must be > 0s and <= 30s, \
                 authorizers[0].subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\", \
                 authorizers[0].failurePolicy: Unsupported value: \"Maybe\": supported values: \"NoOpinion\", \"Deny\"]"),
        );
        assert_parsed(
            &webhook_entry(&format!(
                "{GOOD}, connectionInfo: {{type: KubeConfigFile, kubeConfigFile: HOOK}}, matchConditions: [{{expression: \"true\"}}], \
                 matchConditionSubjectAccessReviewVersion: v1"
            )),
            Ok("Deny 3s 30s"),
        );
        for (condition, why) in [
            ("", "Required value"),
            ("1", "Invalid value: \"1\": must evaluate to bool but got int"),
            (
                "request.nope",
                "Invalid value: \"request.nope\": compilation failed: ERROR: <input>:1:8: undefined field 'nope'\n | \
              request.nope\n | .......^",
            ),
        ] {
            let text = format!(
                "{GOOD}, connectionInfo: {{type: KubeConfigFile, kubeConfigFile: HOOK}}, matchConditions: [{{expression: \"{condition}\"}}], \
                 matchConditionSubjectAccessReviewVersion: v1"
            );
            assert_parsed(&webhook_entry(&text), Err(&format!("authorizers[0].matchConditions[0].expression: {why}")));
        }
        assert_parsed(
            "- {type: ABAC, name: abac}",
            Err("authorizers[0].type: Required value: ABAC needs --authorization-policy-file"),
        );
        let load = "failed to load AuthorizationConfiguration from file: ";
        let other = format!("{load}no kind \"Other\" is registered for version \"apiserver.config.k8s.io/v1\"");
        assert_parsed("apiVersion: apiserver.config.k8s.io/v1\nkind: Other", Err(&other));
        let unknown =
            format!("{load}strict decoding error: unknown field `nome`, expected one of `type`, `name`, `webhook`");
        assert_parsed("- {type: RBAC, nome: rbac}", Err(&unknown));
    }
}
