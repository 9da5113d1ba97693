//! The file of `--authentication-config`: issuers and anonymous requests. Unknown fields are errors; errors name the
//! field path.

use std::sync::Arc;

use api::{
    validate::{FieldError, names},
    yaml,
};
use apiserver_core::http_client::load_root_certificates;
use expressions::authentication::AuthenticationExpression;
use serde::Deserialize;

use super::{
    ALGORITHMS, ClaimMapping, JwtIssuer,
    config_error::{AuthenticationConfigError, invalid_configuration},
    expression::{IssuerExpressions, compile_at},
};

const SUPPORTED_VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The content of the configuration file.
#[derive(Clone, Debug, Default)]
pub struct AuthenticationFile {
    /// OIDC issuers.
    pub issuers: Vec<JwtIssuer>,
    /// Whether anonymous requests are allowed, and for which paths; `None` leaves that to the flag.
    pub anonymous: Option<(bool, Vec<String>)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigurationFile {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    jwt: Vec<JwtFields>,
    anonymous: Option<AnonymousFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnonymousFields {
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    conditions: Vec<AnonymousCondition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnonymousCondition {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JwtFields {
    #[serde(default)]
    issuer: IssuerFields,
    #[serde(default)]
    claim_validation_rules: Vec<ValidationRule>,
    #[serde(default)]
    claim_mappings: ClaimMappingsFields,
    #[serde(default)]
    user_validation_rules: Vec<ValidationRule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct IssuerFields {
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
struct ValidationRule {
    claim: String,
    required_value: String,
    expression: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ClaimMappingsFields {
    username: PrefixedClaim,
    groups: PrefixedClaim,
    uid: PrefixedClaim,
    extra: Vec<ExtraMapping>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PrefixedClaim {
    claim: String,
    prefix: Option<String>,
    expression: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ExtraMapping {
    key: String,
    value_expression: String,
}

impl AuthenticationFile {
    /// Parses a file. `own` are the issuers of this server's own tokens, which others must not use.
    pub fn parse(text: &str, own: &[String]) -> Result<Self, AuthenticationConfigError> {
        let value = yaml::parse(text.as_bytes())?.value;
        let file: ConfigurationFile =
            serde_json::from_value(value).map_err(|error| AuthenticationConfigError::Decode(error.to_string()))?;
        let version = file.api_version.strip_prefix("apiserver.config.k8s.io/").unwrap_or_default();
        if file.kind != "AuthenticationConfiguration" || !SUPPORTED_VERSIONS.contains(&version) {
            return Err(AuthenticationConfigError::Kind(file.kind, file.api_version));
        }
        let mut issuers: Vec<JwtIssuer> = Vec::new();
        for (index, jwt) in file.jwt.into_iter().enumerate() {
            let path = format!("jwt[{index}]");
            let issuer = jwt.into_issuer(&path, own)?;
            if issuers.iter().any(|before| before.url == issuer.url) {
                return Err(invalid_configuration(format!("{path}.issuer.url: Duplicate value: {:?}", issuer.url)));
            }
            issuers.push(issuer);
        }
        let anonymous = file.anonymous.map(|anonymous| {
            let paths: Vec<String> = anonymous.conditions.into_iter().map(|condition| condition.path).collect();
            if !anonymous.enabled && !paths.is_empty() {
                let why = "enabled should be set to true when conditions are defined";
                return Err(invalid_configuration(format!("anonymous.conditions: Invalid value: {paths:?}: {why}")));
            }
            Ok((anonymous.enabled, paths))
        });
        Ok(Self { issuers, anonymous: anonymous.transpose()? })
    }
}

impl JwtFields {
    fn into_issuer(self, path: &str, own: &[String]) -> Result<JwtIssuer, AuthenticationConfigError> {
        let field_path = |field: &str| format!("{path}.{field}");
        self.issuer.validate(&field_path("issuer"), own)?;
        let mut expressions = IssuerExpressions::default();
        let required =
            compile_claim_rules(self.claim_validation_rules, &field_path("claimValidationRules"), &mut expressions)?;
        let ClaimMappingsFields { username, groups, uid, extra } = self.claim_mappings;
        expressions.username = username.compile_expression(&field_path("claimMappings.username"))?;
        let username = username.into_mapping(&field_path("claimMappings.username"), expressions.username.is_none())?;
        expressions.groups = groups.compile_expression(&field_path("claimMappings.groups"))?;
        let groups = groups.into_mapping(&field_path("claimMappings.groups"), false)?;
        expressions.uid = uid.compile_expression(&field_path("claimMappings.uid"))?;
        for (index, extra) in extra.iter().enumerate() {
            extra.compile_into(&field_path(&format!("claimMappings.extra[{index}]")), &mut expressions)?;
        }
        expressions.check_email(path)?;
        compile_user_rules(&self.user_validation_rules, &field_path("userValidationRules"), &mut expressions)?;
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

/// Splits rules into required claims and compiled expressions.
fn compile_claim_rules(
    rules: Vec<ValidationRule>,
    path: &str,
    expressions: &mut IssuerExpressions,
) -> Result<Vec<(String, String)>, AuthenticationConfigError> {
    let mut required: Vec<(String, String)> = Vec::new();
    for (index, rule) in rules.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        if rule.expression.is_empty() || !rule.claim.is_empty() {
            let rule = rule.into_required_claim(&path)?;
            if required.iter().any(|(claim, _)| *claim == rule.0) {
                return Err(invalid_configuration(format!("{path}.claim: Duplicate value: {:?}", rule.0)));
            }
            required.push(rule);
            continue;
        }
        if !rule.required_value.is_empty() {
            let why = "may not be specified when expression is set";
            return Err(invalid_configuration(format!(
                "{path}.requiredValue: Invalid value: {:?}: {why}",
                rule.required_value
            )));
        }
        check_unique(&expressions.claim_rules, &rule, &path)?;
        let compiled =
            compile_at(format!("{path}.expression"), &rule.expression, AuthenticationExpression::compile_claim_rule)?;
        expressions.claim_rules.push((compiled, rule.message));
    }
    Ok(required)
}

fn compile_user_rules(
    rules: &[ValidationRule],
    path: &str,
    expressions: &mut IssuerExpressions,
) -> Result<(), AuthenticationConfigError> {
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if rule.expression.is_empty() {
            return Err(invalid_configuration(format!("{path}.expression: Required value")));
        }
        check_unique(&expressions.user_rules, rule, &path)?;
        let compiled =
            compile_at(format!("{path}.expression"), &rule.expression, AuthenticationExpression::compile_user_rule)?;
        expressions.user_rules.push((compiled, rule.message.clone()));
    }
    Ok(())
}

fn check_unique(
    known: &[(AuthenticationExpression, String)],
    rule: &ValidationRule,
    path: &str,
) -> Result<(), AuthenticationConfigError> {
    match known.iter().any(|(known, _)| known.source() == rule.expression) {
        true => Err(invalid_configuration(format!("{path}.expression: Duplicate value: {:?}", rule.expression))),
        false => Ok(()),
    }
}

impl ExtraMapping {
    fn compile_into(&self, path: &str, expressions: &mut IssuerExpressions) -> Result<(), AuthenticationConfigError> {
        let (key, field) = (&self.key, format!("{path}.key"));
        let invalid_key = |value: &str, why: String| {
            invalid_configuration(FieldError::invalid(field.as_str(), value, why).to_string())
        };
        if key.is_empty() {
            return Err(invalid_configuration(format!("{field}: Required value")));
        }
        let Some((host, rest)) = key.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
            return Err(invalid_key(key, "must be a domain-prefixed path (such as \"acme.io/foo\")".into()));
        };
        if let Some(why) = names::check_dns_subdomain(host).into_iter().next() {
            return Err(invalid_key(host, why));
        }
        if !rest.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c)) {
            let form = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
            return Err(invalid_key(rest, format!("Invalid path (regex used for validation is '{form}')")));
        }
        if *key != key.to_lowercase() {
            return Err(invalid_key(key, "must be lowercase".into()));
        }
        let reserved = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            return Err(invalid_key(key, why.into()));
        }
        if expressions.extra.iter().any(|(known, _)| known == key) {
            return Err(invalid_configuration(format!("{field}: Duplicate value: {key:?}")));
        }
        if self.value_expression.is_empty() {
            return Err(invalid_configuration(format!("{path}.valueExpression: Required value")));
        }
        let compiled = compile_at(
            format!("{path}.valueExpression"),
            &self.value_expression,
            AuthenticationExpression::compile_claim_mapping,
        )?;
        expressions.extra.push((key.clone(), compiled));
        Ok(())
    }
}

impl IssuerFields {
    fn validate(&self, path: &str, own: &[String]) -> Result<(), AuthenticationConfigError> {
        if self.url.is_empty() {
            return Err(invalid_configuration(format!("{path}.url: Required value")));
        }
        if own.contains(&self.url) {
            let why = format!("URL must not overlap with disallowed issuers: [{}]", own.join(" "));
            return Err(invalid_configuration(format!("{path}.url: Invalid value: {:?}: {why}", self.url)));
        }
        check_url(&format!("{path}.url"), &self.url)?;
        if !self.discovery_url.is_empty() {
            let path = format!("{path}.discoveryURL");
            if self.discovery_url.trim_end_matches('/') == self.url.trim_end_matches('/') {
                let why = "discoveryURL must be different from URL";
                return Err(invalid_configuration(format!("{path}: Invalid value: {:?}: {why}", self.discovery_url)));
            }
            check_url(&path, &self.discovery_url)?;
        }
        self.check_audiences(path)?;
        if !self.certificate_authority.is_empty()
            && let Err(why) = load_root_certificates(Some(&self.certificate_authority))
        {
            return Err(invalid_configuration(format!(
                "{path}.certificateAuthority: Invalid value: \"<omitted>\": {why}"
            )));
        }
        if !self.egress_selector_type.is_empty() {
            return Err(invalid_configuration(format!(
                "{path}.egressSelectorType: egress selectors are not supported"
            )));
        }
        Ok(())
    }

    fn check_audiences(&self, path: &str) -> Result<(), AuthenticationConfigError> {
        if self.audiences.is_empty() {
            return Err(invalid_configuration(format!(
                "{path}.audiences: Required value: at least one {path}.audiences is required"
            )));
        }
        for (at, audience) in self.audiences.iter().enumerate() {
            if audience.is_empty() {
                return Err(invalid_configuration(format!("{path}.audiences[{at}]: Required value")));
            }
            if self.audiences[..at].contains(audience) {
                return Err(invalid_configuration(format!("{path}.audiences[{at}]: Duplicate value: {audience:?}")));
            }
        }
        let why = match (self.audiences.len(), self.audience_match_policy.as_str()) {
            (_, "MatchAny") | (1, "") => return Ok(()),
            (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
            _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
        };
        let policy = &self.audience_match_policy;
        Err(invalid_configuration(format!("{path}.audienceMatchPolicy: Invalid value: {policy:?}: {why}")))
    }
}

impl ValidationRule {
    fn into_required_claim(self, path: &str) -> Result<(String, String), AuthenticationConfigError> {
        if self.claim.is_empty() {
            return Err(invalid_configuration(format!("{path}: Required value: claim or expression is required")));
        }
        if !self.expression.is_empty() {
            let why = "claim and expression can't both be set";
            return Err(invalid_configuration(format!("{path}: Invalid value: {:?}: {why}", self.claim)));
        }
        if !self.message.is_empty() {
            let why = "may not be specified when claim is set";
            return Err(invalid_configuration(format!("{path}.message: Invalid value: {:?}: {why}", self.message)));
        }
        Ok((self.claim, self.required_value))
    }
}

impl PrefixedClaim {
    /// Compiles the expression that replaces the claim.
    fn compile_expression(&self, path: &str) -> Result<Option<AuthenticationExpression>, AuthenticationConfigError> {
        if self.expression.is_empty() {
            return Ok(None);
        }
        if !self.claim.is_empty() {
            let why = "claim and expression can't both be set";
            return Err(invalid_configuration(format!("{path}: Invalid value: \"\": {why}")));
        }
        if let Some(prefix) = &self.prefix {
            let why = "may not be specified when expression is set";
            return Err(invalid_configuration(format!("{path}.prefix: Invalid value: {prefix:?}: {why}")));
        }
        compile_at(format!("{path}.expression"), &self.expression, AuthenticationExpression::compile_claim_mapping)
            .map(Some)
    }

    fn into_mapping(self, path: &str, needed: bool) -> Result<Option<ClaimMapping>, AuthenticationConfigError> {
        if self.claim.is_empty() {
            return match (needed, self.prefix) {
                (true, _) => {
                    Err(invalid_configuration(format!("{path}: Required value: claim or expression is required")))
                }
                (false, Some(prefix)) if !prefix.is_empty() => {
                    let why = "non-empty prefix can't be set when claim is not set";
                    Err(invalid_configuration(format!("{path}.prefix: Invalid value: {prefix:?}: {why}")))
                }
                _ => Ok(None),
            };
        }
        let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
        let prefix =
            self.prefix.ok_or_else(|| invalid_configuration(format!("{path}.prefix: Required value: {why}")))?;
        Ok(Some(ClaimMapping { claim: self.claim, prefix }))
    }
}

fn check_url(path: &str, url: &str) -> Result<(), AuthenticationConfigError> {
    let invalid_url = |why: &str| Err(invalid_configuration(format!("{path}: Invalid value: {url:?}: {why}")));
    let Some(rest) = url.strip_prefix("https://") else { return invalid_url("URL scheme must be https") };
    if rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
        return invalid_url("URL must not contain a username or password");
    }
    if rest.contains('?') {
        return invalid_url("URL must not contain a query");
    }
    if rest.contains('#') {
        return invalid_url("URL must not contain a fragment");
    }
    Ok(())
}
