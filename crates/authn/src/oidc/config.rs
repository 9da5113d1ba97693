//! The file of `--authentication-config`: issuers of tokens, and who may be anonymous. Unknown fields are errors, and what is
//! wrong is named by its path.

use std::sync::Arc;

use api::{
    validate::{FieldError, names},
    yaml,
};
use apiserver_core::http_client::load_root_certificates;
use expressions::authentication::Expression;
use serde::Deserialize;

use super::{
    ALGORITHMS, JwtIssuer, Mapping,
    expression::{Expressions, compile},
};

const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// Why such a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(#[from] yaml::Error),
    /// It has a field that is not known, or one of the wrong type.
    #[error("strict decoding error: {0}")]
    Decode(String),
    /// It is of another kind.
    #[error("no kind {0:?} is registered for version {1:?}")]
    Kind(String, String),
    /// A value is wrong; in upstream's form.
    #[error("invalid authentication configuration: {0}")]
    Invalid(String),
}

/// What the file says.
#[derive(Clone, Debug, Default)]
pub struct AuthenticationFile {
    /// Issuers of tokens.
    pub issuers: Vec<JwtIssuer>,
    /// Whether requests without credentials are served, and for which paths; `None`: the flag says it.
    pub anonymous: Option<(bool, Vec<String>)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    jwt: Vec<Jwt>,
    anonymous: Option<Anonymous>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Anonymous {
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Jwt {
    #[serde(default)]
    issuer: Issuer,
    #[serde(default)]
    claim_validation_rules: Vec<Rule>,
    #[serde(default)]
    claim_mappings: Mappings,
    #[serde(default)]
    user_validation_rules: Vec<Rule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Issuer {
    url: String,
    #[serde(rename = "discoveryURL")]
    discovery_url: String,
    certificate_authority: String,
    audiences: Vec<String>,
    audience_match_policy: String,
    egress_selector_type: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Rule {
    claim: String,
    required_value: String,
    expression: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Mappings {
    username: Claim,
    groups: Claim,
    uid: Claim,
    extra: Vec<Extra>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Claim {
    claim: String,
    prefix: Option<String>,
    expression: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Extra {
    key: String,
    value_expression: String,
}

impl AuthenticationFile {
    /// Reads a file. `own` are the issuers of this server's own tokens, which nobody else may have.
    pub fn parse(text: &str, own: &[String]) -> Result<Self, ConfigError> {
        let value = yaml::parse(text.as_bytes())?.value;
        let file: File = serde_json::from_value(value).map_err(|error| ConfigError::Decode(error.to_string()))?;
        let version = file.api_version.strip_prefix("apiserver.config.k8s.io/").unwrap_or_default();
        if file.kind != "AuthenticationConfiguration" || !VERSIONS.contains(&version) {
            return Err(ConfigError::Kind(file.kind, file.api_version));
        }
        let mut issuers: Vec<JwtIssuer> = Vec::new();
        for (at, jwt) in file.jwt.into_iter().enumerate() {
            let path = format!("jwt[{at}]");
            let issuer = jwt.issuer(&path, own)?;
            if issuers.iter().any(|before| before.url == issuer.url) {
                return Err(invalid(format!("{path}.issuer.url: Duplicate value: {:?}", issuer.url)));
            }
            issuers.push(issuer);
        }
        let anonymous = file.anonymous.map(|anonymous| {
            let paths: Vec<String> = anonymous.conditions.into_iter().map(|condition| condition.path).collect();
            if !anonymous.enabled && !paths.is_empty() {
                let why = "enabled should be set to true when conditions are defined";
                return Err(invalid(format!("anonymous.conditions: Invalid value: {paths:?}: {why}")));
            }
            Ok((anonymous.enabled, paths))
        });
        Ok(Self { issuers, anonymous: anonymous.transpose()? })
    }
}

impl Jwt {
    fn issuer(self, path: &str, own: &[String]) -> Result<JwtIssuer, ConfigError> {
        let at = |field: &str| format!("{path}.{field}");
        self.issuer.check(&at("issuer"), own)?;
        let mut expressions = Expressions::default();
        let required = claims_rules(self.claim_validation_rules, &at("claimValidationRules"), &mut expressions)?;
        let Mappings { username, groups, uid, extra } = self.claim_mappings;
        expressions.username = username.expression(&at("claimMappings.username"))?;
        let username = username.mapping(&at("claimMappings.username"), expressions.username.is_none())?;
        expressions.groups = groups.expression(&at("claimMappings.groups"))?;
        let groups = groups.mapping(&at("claimMappings.groups"), false)?;
        expressions.uid = uid.expression(&at("claimMappings.uid"))?;
        for (n, extra) in extra.iter().enumerate() {
            extra.add(&at(&format!("claimMappings.extra[{n}]")), &mut expressions)?;
        }
        expressions.check_email(path)?;
        user_rules(&self.user_validation_rules, &at("userValidationRules"), &mut expressions)?;
        Ok(JwtIssuer {
            username: username.unwrap_or_default(),
            groups,
            uid: Some(uid.claim).filter(|claim| !claim.is_empty()),
            required,
            expressions: Arc::new(expressions),
            discovery_url: Some(self.issuer.discovery_url).filter(|url| !url.is_empty()),
            authority: Some(self.issuer.certificate_authority).filter(|pem| !pem.is_empty()),
            audiences: self.issuer.audiences,
            url: self.issuer.url,
            algorithms: ALGORITHMS.map(str::to_owned).to_vec(),
        })
    }
}

/// Sorts rules into claims that must be there and expressions that must hold.
fn claims_rules(
    rules: Vec<Rule>,
    path: &str,
    expressions: &mut Expressions,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut required: Vec<(String, String)> = Vec::new();
    for (n, rule) in rules.into_iter().enumerate() {
        let path = format!("{path}[{n}]");
        if rule.expression.is_empty() || !rule.claim.is_empty() {
            let rule = rule.required(&path)?;
            if required.iter().any(|(claim, _)| *claim == rule.0) {
                return Err(invalid(format!("{path}.claim: Duplicate value: {:?}", rule.0)));
            }
            required.push(rule);
            continue;
        }
        if !rule.required_value.is_empty() {
            let why = "may not be specified when expression is set";
            return Err(invalid(format!("{path}.requiredValue: Invalid value: {:?}: {why}", rule.required_value)));
        }
        unique(&expressions.claims_rules, &rule, &path)?;
        let compiled = compile(format!("{path}.expression"), &rule.expression, Expression::claims_rule)?;
        expressions.claims_rules.push((compiled, rule.message));
    }
    Ok(required)
}

fn user_rules(rules: &[Rule], path: &str, expressions: &mut Expressions) -> Result<(), ConfigError> {
    for (n, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{n}]");
        if rule.expression.is_empty() {
            return Err(invalid(format!("{path}.expression: Required value")));
        }
        unique(&expressions.user_rules, rule, &path)?;
        let compiled = compile(format!("{path}.expression"), &rule.expression, Expression::user_rule)?;
        expressions.user_rules.push((compiled, rule.message.clone()));
    }
    Ok(())
}

fn unique(known: &[(Expression, String)], rule: &Rule, path: &str) -> Result<(), ConfigError> {
    match known.iter().any(|(known, _)| known.source() == rule.expression) {
        true => Err(invalid(format!("{path}.expression: Duplicate value: {:?}", rule.expression))),
        false => Ok(()),
    }
}

impl Extra {
    fn add(&self, path: &str, expressions: &mut Expressions) -> Result<(), ConfigError> {
        let (key, field) = (&self.key, format!("{path}.key"));
        let wrong = |value: &str, why: String| invalid(FieldError::invalid(field.as_str(), value, why).to_string());
        if key.is_empty() {
            return Err(invalid(format!("{field}: Required value")));
        }
        let Some((host, rest)) = key.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
            return Err(wrong(key, "must be a domain-prefixed path (such as \"acme.io/foo\")".into()));
        };
        if let Some(why) = names::subdomain(host).into_iter().next() {
            return Err(wrong(host, why));
        }
        if !rest.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c)) {
            let form = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
            return Err(wrong(rest, format!("Invalid path (regex used for validation is '{form}')")));
        }
        if *key != key.to_lowercase() {
            return Err(wrong(key, "must be lowercase".into()));
        }
        let reserved = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            return Err(wrong(key, why.into()));
        }
        if expressions.extra.iter().any(|(known, _)| known == key) {
            return Err(invalid(format!("{field}: Duplicate value: {key:?}")));
        }
        if self.value_expression.is_empty() {
            return Err(invalid(format!("{path}.valueExpression: Required value")));
        }
        let compiled = compile(format!("{path}.valueExpression"), &self.value_expression, Expression::mapping)?;
        expressions.extra.push((key.clone(), compiled));
        Ok(())
    }
}

impl Issuer {
    fn check(&self, path: &str, own: &[String]) -> Result<(), ConfigError> {
        if self.url.is_empty() {
            return Err(invalid(format!("{path}.url: Required value")));
        }
        if own.contains(&self.url) {
            let why = format!("URL must not overlap with disallowed issuers: [{}]", own.join(" "));
            return Err(invalid(format!("{path}.url: Invalid value: {:?}: {why}", self.url)));
        }
        check_url(&format!("{path}.url"), &self.url)?;
        if !self.discovery_url.is_empty() {
            let path = format!("{path}.discoveryURL");
            if self.discovery_url.trim_end_matches('/') == self.url.trim_end_matches('/') {
                let why = "discoveryURL must be different from URL";
                return Err(invalid(format!("{path}: Invalid value: {:?}: {why}", self.discovery_url)));
            }
            check_url(&path, &self.discovery_url)?;
        }
        self.check_audiences(path)?;
        if !self.certificate_authority.is_empty()
            && let Err(why) = load_root_certificates(Some(&self.certificate_authority))
        {
            return Err(invalid(format!("{path}.certificateAuthority: Invalid value: \"<omitted>\": {why}")));
        }
        if !self.egress_selector_type.is_empty() {
            return Err(invalid(format!("{path}.egressSelectorType: egress selectors are not supported")));
        }
        Ok(())
    }

    fn check_audiences(&self, path: &str) -> Result<(), ConfigError> {
        if self.audiences.is_empty() {
            return Err(invalid(format!(
                "{path}.audiences: Required value: at least one {path}.audiences is required"
            )));
        }
        for (at, audience) in self.audiences.iter().enumerate() {
            if audience.is_empty() {
                return Err(invalid(format!("{path}.audiences[{at}]: Required value")));
            }
            if self.audiences[..at].contains(audience) {
                return Err(invalid(format!("{path}.audiences[{at}]: Duplicate value: {audience:?}")));
            }
        }
        let why = match (self.audiences.len(), self.audience_match_policy.as_str()) {
            (_, "MatchAny") | (1, "") => return Ok(()),
            (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
            _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
        };
        let policy = &self.audience_match_policy;
        Err(invalid(format!("{path}.audienceMatchPolicy: Invalid value: {policy:?}: {why}")))
    }
}

impl Rule {
    fn required(self, path: &str) -> Result<(String, String), ConfigError> {
        if self.claim.is_empty() {
            return Err(invalid(format!("{path}: Required value: claim or expression is required")));
        }
        if !self.expression.is_empty() {
            let why = "claim and expression can't both be set";
            return Err(invalid(format!("{path}: Invalid value: {:?}: {why}", self.claim)));
        }
        if !self.message.is_empty() {
            let why = "may not be specified when claim is set";
            return Err(invalid(format!("{path}.message: Invalid value: {:?}: {why}", self.message)));
        }
        Ok((self.claim, self.required_value))
    }
}

impl Claim {
    /// The expression in place of a claim.
    fn expression(&self, path: &str) -> Result<Option<Expression>, ConfigError> {
        if self.expression.is_empty() {
            return Ok(None);
        }
        if !self.claim.is_empty() {
            let why = "claim and expression can't both be set";
            return Err(invalid(format!("{path}: Invalid value: \"\": {why}")));
        }
        if let Some(prefix) = &self.prefix {
            let why = "may not be specified when expression is set";
            return Err(invalid(format!("{path}.prefix: Invalid value: {prefix:?}: {why}")));
        }
        compile(format!("{path}.expression"), &self.expression, Expression::mapping).map(Some)
    }

    fn mapping(self, path: &str, needed: bool) -> Result<Option<Mapping>, ConfigError> {
        if self.claim.is_empty() {
            return match (needed, self.prefix) {
                (true, _) => Err(invalid(format!("{path}: Required value: claim or expression is required"))),
                (false, Some(prefix)) if !prefix.is_empty() => {
                    let why = "non-empty prefix can't be set when claim is not set";
                    Err(invalid(format!("{path}.prefix: Invalid value: {prefix:?}: {why}")))
                }
                _ => Ok(None),
            };
        }
        let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
        let prefix = self.prefix.ok_or_else(|| invalid(format!("{path}.prefix: Required value: {why}")))?;
        Ok(Some(Mapping { claim: self.claim, prefix }))
    }
}

fn check_url(path: &str, url: &str) -> Result<(), ConfigError> {
    let wrong = |why: &str| Err(invalid(format!("{path}: Invalid value: {url:?}: {why}")));
    let Some(rest) = url.strip_prefix("https://") else { return wrong("URL scheme must be https") };
    if rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
        return wrong("URL must not contain a username or password");
    }
    if rest.contains('?') {
        return wrong("URL must not contain a query");
    }
    if rest.contains('#') {
        return wrong("URL must not contain a fragment");
    }
    Ok(())
}

pub(super) fn invalid(text: String) -> ConfigError {
    ConfigError::Invalid(text)
}
