//! The configuration of ResourceQuota: `limitedResources`, which may only be consumed where a quota covers them.

use std::collections::BTreeSet;

use api::{Value, meta, quota, status::Status};

use super::quota_evaluator::{MatchedQuota, QuotaRequest};
use crate::{AdmissionAttributes, error::PluginError};

/// The configured `limitedResources`.
#[derive(Debug, Default)]
pub struct LimitedResources(Vec<Value>);

impl LimitedResources {
    /// Parses `limitedResources` of a ResourceQuotaConfiguration.
    pub fn from_config(config: Option<&Value>) -> Result<Self, PluginError> {
        let Some(config) = config else { return Ok(Self::default()) };
        let list = meta::list_at(config, &["limitedResources"]).to_vec();
        match list.iter().position(|entry| meta::string_at(entry, &["resource"]).is_empty()) {
            Some(at) => Err(format!("limitedResources[{at}].resource: Required value: ").into()),
            None => Ok(Self(list)),
        }
    }

    /// Whether no resource is limited.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that quotas cover all limited resources and scopes of the request.
    pub fn check_coverage(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        request: &QuotaRequest<'_>,
        quotas: &[Value],
        matched_quotas: &[MatchedQuota<'_>],
    ) -> Result<(), Status> {
        if self.is_empty() {
            return Ok(());
        }
        let covered: BTreeSet<&String> = matched_quotas.iter().flat_map(|matched| &matched.names).collect();
        let uncovered: BTreeSet<&String> =
            self.limited_names(request).into_iter().filter(|name| !covered.contains(name)).collect();
        if !uncovered.is_empty() {
            let names: Vec<&str> = uncovered.into_iter().map(String::as_str).collect();
            return Err(attributes.new_forbidden(object, format!("insufficient quota to consume: {}", names.join(","))));
        }
        let matching = |scope: &&Value| request.kind.matches_scope(scope, request.object);
        let scopes: Vec<Value> = quotas.iter().flat_map(quota::scope_selectors).collect();
        let known: Vec<&Value> = scopes.iter().filter(matching).map(|scope| &scope["scopeName"]).collect();
        let needed = self.0.iter().flat_map(|entry| meta::list_at(entry, &["matchScopes"])).filter(matching);
        let missing: Vec<String> =
            needed.filter(|scope| !known.contains(&&scope["scopeName"])).map(format_scope_requirement).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("insufficient quota to match these scopes: [{}]", missing.join(" "));
        Err(Status { code: 500, reason: "", message, details: None, continue_token: None })
    }

    /// The names of limited resources that the request consumes.
    fn limited_names<'a>(&self, request: &'a QuotaRequest<'_>) -> Vec<&'a String> {
        let entries = self.0.iter().filter(|entry| {
            meta::string_at(entry, &["apiGroup"]) == request.kind.group
                && meta::string_at(entry, &["resource"]) == request.kind.resource
        });
        let wanted: Vec<&str> =
            entries.flat_map(|entry| meta::list_at(entry, &["matchContains"])).filter_map(Value::as_str).collect();
        let used = request.usage.iter().filter(|(_, amount)| !amount.is_zero());
        used.map(|(name, _)| name).filter(|name| wanted.iter().any(|part| name.contains(part))).collect()
    }
}

/// Formats a scope selector requirement as Go's `%v` does.
fn format_scope_requirement(scope: &Value) -> String {
    let values: Vec<&str> = meta::list_at(scope, &["values"]).iter().filter_map(Value::as_str).collect();
    format!(
        "{{{} {} [{}]}}",
        meta::string_at(scope, &["scopeName"]),
        meta::string_at(scope, &["operator"]),
        values.join(" ")
    )
}
