//! IP families of a service: fills in missing fields from the request, the current service and the cluster's families,
//! with upstream's rules, order and error texts.

use std::net::IpAddr;

use api::{Value, meta, validate::FieldError};
use serde_json::json;

use super::ip_network::IpFamily;

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// The IP address fields of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceIpFields {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    pub kind: String,
    /// `spec.clusterIP`.
    pub ip: String,
    /// `spec.clusterIPs`.
    pub ips: Vec<String>,
    /// `spec.ipFamilies`.
    pub families: Vec<String>,
    /// `spec.ipFamilyPolicy`.
    pub policy: Option<String>,
    /// Whether the service has a selector.
    pub selects: bool,
}

impl ServiceIpFields {
    /// Reads the fields of a service.
    pub fn from_service(service: &Value) -> Self {
        let spec = &service["spec"];
        let texts =
            |name: &str| meta::list_at(spec, &[name]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            kind: meta::string_at(spec, &["type"]).to_owned(),
            ip: meta::string_at(spec, &["clusterIP"]).to_owned(),
            ips: texts("clusterIPs"),
            families: texts("ipFamilies"),
            policy: spec["ipFamilyPolicy"].as_str().map(str::to_owned),
            selects: spec["selector"].as_object().is_some_and(|selector| !selector.is_empty()),
        }
    }

    /// Writes the fields to a service.
    pub fn write_to(&self, service: &mut Value) {
        let spec = meta::field_mut(service, "spec");
        let mut set = |name: &str, value: Option<Value>| match value {
            Some(value) => drop(spec.insert(name.to_owned(), value)),
            None => drop(spec.remove(name)),
        };
        let list = |list: &Vec<String>| (!list.is_empty()).then(|| json!(list));
        set("clusterIP", (!self.ip.is_empty()).then(|| json!(self.ip)));
        set("clusterIPs", list(&self.ips));
        set("ipFamilies", list(&self.families));
        set("ipFamilyPolicy", self.policy.as_ref().map(|policy| json!(policy)));
    }

    /// Whether services of this type have cluster IPs.
    pub fn needs_ip(&self) -> bool {
        self.kind != "ExternalName"
    }

    /// Whether the service is headless.
    pub fn is_headless(&self) -> bool {
        self.ips.first().is_some_and(|ip| ip == "None")
    }

    /// Updates `clusterIPs` if a client set or changed only `clusterIP`.
    pub fn normalize_cluster_ips(&mut self, old: Option<&ServiceIpFields>) {
        let Some(old) = old else {
            if !self.ip.is_empty() && self.ips.is_empty() {
                self.ips = vec![self.ip.clone()];
            }
            return;
        };
        if !old.ips.is_empty() && self.ips.is_empty() && old.ip == self.ip {
            self.ips.clone_from(&old.ips);
        }
        if old.ip != self.ip && self.ips == old.ips {
            self.ips = if self.ip.is_empty() { Vec::new() } else { vec![self.ip.clone()] };
        }
    }

    /// Whether an update of a `PreferDualStack` service keeps its addresses: its IP fields are unchanged, even if the
    /// cluster's families changed.
    pub fn keeps_addresses(&self, old: &ServiceIpFields) -> bool {
        let prefers = |policy: &Option<String>| policy.as_deref() == Some(PREFER);
        old.kind == self.kind
            && self.needs_ip()
            && prefers(&self.policy)
            && (old.policy.is_none() || prefers(&old.policy))
            && old.ips == self.ips
            && old.families == self.families
    }

    /// Sets a missing `ipFamilyPolicy`.
    pub fn default_policy(&mut self, old: Option<&ServiceIpFields>) {
        if self.policy.is_none() {
            let inherited = old.and_then(|old| old.policy.clone());
            let usual = if self.ip == "None" && !self.selects { REQUIRE } else { SINGLE };
            self.policy = inherited.or_else(|| Some(usual.to_owned()));
        }
    }

    /// Fills in families and drops those that the policy releases. `configured` are the cluster's families.
    pub fn complete_families(
        &mut self,
        old: Option<&ServiceIpFields>,
        configured: &[IpFamily],
    ) -> Result<(), Vec<FieldError>> {
        let mut errors = old.map(|old| self.release_secondary(old)).unwrap_or_default();
        errors.extend(self.check_single_stack());
        errors.extend(self.infer_families(configured));
        if !errors.is_empty() {
            return Err(errors);
        }
        let default = configured.first().map_or(IpFamily::V4, |family| *family).name();
        if self.ip == "None" && !self.selects {
            // Its endpoints are managed by the client: it may have both families on any cluster.
            if self.families.is_empty() {
                self.families.push(default.to_owned());
            }
            self.add_secondary_family();
            return Ok(());
        }
        let errors = self.check_configured(configured);
        if !errors.is_empty() {
            return Err(errors);
        }
        if self.families.is_empty() {
            self.families.push(default.to_owned());
        }
        if configured.len() == 2 {
            self.add_secondary_family();
        }
        Ok(())
    }

    fn is_single(&self) -> bool {
        self.policy.as_deref() == Some(SINGLE)
    }

    fn add_secondary_family(&mut self) {
        if !self.is_single() && self.families.len() == 1 {
            let other = if self.families[0] == IpFamily::V4.name() { IpFamily::V6 } else { IpFamily::V4 };
            self.families.push(other.name().to_owned());
        }
    }

    /// Releases the secondary family; only `SingleStack` allows it.
    fn release_secondary(&mut self, old: &ServiceIpFields) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.is_single() {
            if old.ips == self.ips {
                self.ips.truncate(1);
            }
            if old.families == self.families {
                self.families.truncate(1);
            }
            return errors;
        }
        if !self.ips.is_empty() && self.ips.len() < old.ips.len() {
            errors.push(self.wrong_policy("must be 'SingleStack' to release the secondary cluster IP"));
        }
        if !self.families.is_empty() && self.families.len() < old.families.len() {
            errors.push(self.wrong_policy("must be 'SingleStack' to release the secondary IP family"));
        }
        errors
    }

    fn check_single_stack(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let several = [(self.ips.len(), "cluster IPs"), (self.families.len(), "IP families")];
        for (_, what) in several.into_iter().filter(|(count, _)| self.is_single() && *count == 2) {
            errors.push(self.wrong_policy(&format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            )));
        }
        errors
    }

    /// Infers families from the cluster IPs.
    fn infer_families(&mut self, configured: &[IpFamily]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (at, ip) in self.ips.iter().enumerate().take_while(|(_, ip)| *ip != "None") {
            let Some(family) = ip.parse::<IpAddr>().ok().map(IpFamily::from_ip) else { continue };
            if at < self.families.len() {
                continue;
            }
            if configured.contains(&family) {
                self.families.push(family.name().to_owned());
            } else {
                let message = format!("{} is not configured on this cluster", family.name());
                errors.push(FieldError::invalid(format!("spec.clusterIPs[{at}]"), json!(self.ips), message));
            }
        }
        errors
    }

    fn check_configured(&self, configured: &[IpFamily]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.policy.as_deref() == Some(REQUIRE) && configured.len() < 2 {
            errors.push(self.wrong_policy("this cluster is not configured for dual-stack services"));
        }
        for (at, name) in self.families.iter().enumerate() {
            if !IpFamily::from_name(name).is_some_and(|family| configured.contains(&family)) {
                let field = format!("spec.ipFamilies[{at}]");
                errors.push(FieldError::invalid(field, name.as_str(), "not configured on this cluster"));
            }
        }
        errors
    }

    fn wrong_policy(&self, message: &str) -> FieldError {
        FieldError::invalid("spec.ipFamilyPolicy", self.policy.as_deref().unwrap_or_default(), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> ServiceIpFields {
        let mut spec = spec;
        let map = meta::object_mut(&mut spec);
        map.entry("type").or_insert_with(|| json!("ClusterIP"));
        map.entry("selector").or_insert_with(|| json!({"a": "b"}));
        ServiceIpFields::from_service(&json!({"spec": spec}))
    }

    fn check(spec: Value, old: Option<Value>, configured: &[IpFamily], want: Result<(&str, &[&str]), &str>) {
        let (mut new, old) = (service(spec), old.map(service));
        new.normalize_cluster_ips(old.as_ref());
        new.default_policy(old.as_ref());
        let outcome = new.complete_families(old.as_ref(), configured);
        match want {
            Ok((policy, families)) => {
                assert_eq!(outcome, Ok(()));
                assert_eq!(
                    (new.policy.as_deref(), new.families),
                    (Some(policy), families.iter().map(|f| f.to_string()).collect())
                );
            }
            Err(text) => {
                let errors = outcome.unwrap_err();
                assert!(errors.iter().any(|error| error.to_string().contains(text)), "{errors:?}");
            }
        }
    }

    const V4: &[IpFamily] = &[IpFamily::V4];
    const DUAL: &[IpFamily] = &[IpFamily::V6, IpFamily::V4];

    #[test]
    fn families_follow_policy_and_cluster() {
        check(json!({}), None, V4, Ok((SINGLE, &["IPv4"])));
        check(json!({}), None, DUAL, Ok((SINGLE, &["IPv6"])));
        check(json!({"ipFamilyPolicy": PREFER}), None, V4, Ok((PREFER, &["IPv4"])));
        check(json!({"ipFamilyPolicy": PREFER}), None, DUAL, Ok((PREFER, &["IPv6", "IPv4"])));
        check(json!({"ipFamilyPolicy": REQUIRE, "ipFamilies": ["IPv4"]}), None, DUAL, Ok((REQUIRE, &["IPv4", "IPv6"])));
        check(json!({"clusterIP": "None", "selector": {}}), None, V4, Ok((REQUIRE, &["IPv4", "IPv6"])));
        check(json!({"clusterIP": "None"}), None, V4, Ok((SINGLE, &["IPv4"])));
        check(json!({"clusterIP": "10.0.0.1"}), None, DUAL, Ok((SINGLE, &["IPv4"])));
    }

    #[test]
    fn unconfigured_family_is_rejected() {
        check(json!({"ipFamilyPolicy": REQUIRE}), None, V4, Err("this cluster is not configured for dual-stack"));
        check(json!({"ipFamilies": ["IPv6"]}), None, V4, Err("spec.ipFamilies[0]"));
        check(json!({"clusterIP": "fd00::1"}), None, V4, Err("IPv6 is not configured on this cluster"));
        let two = json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": SINGLE});
        check(two, None, DUAL, Err("when multiple IP families are specified"));
    }

    #[test]
    fn single_stack_policy_releases_the_secondary_family() {
        let old = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": REQUIRE});
        let mut new = old.clone();
        new["ipFamilyPolicy"] = SINGLE.into();
        check(new.clone(), Some(old.clone()), DUAL, Ok((SINGLE, &["IPv4"])));
        new["ipFamilyPolicy"] = REQUIRE.into();
        new["ipFamilies"] = json!(["IPv4"]);
        check(new, Some(old), DUAL, Err("must be 'SingleStack' to release the secondary IP family"));
    }
}
