//! The address families of a service: what a client left out is filled in from what it said, from what was there before
//! and from what the cluster has. Upstream's rules, in upstream's order, with upstream's words.

use std::net::IpAddr;

use api::{Value, meta, validate::FieldError};
use serde_json::json;

use super::network::Family;

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// The fields of a service that say which addresses it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
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
    /// Whether it selects pods.
    pub selects: bool,
}

impl Fields {
    /// The fields of a service.
    pub fn of(service: &Value) -> Self {
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

    /// Writes them back.
    pub fn write(&self, service: &mut Value) {
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

    /// Whether services of this type have addresses.
    pub fn needs_ip(&self) -> bool {
        self.kind != "ExternalName"
    }

    /// Whether it asks for no address of its own.
    pub fn is_headless(&self) -> bool {
        self.ips.first().is_some_and(|ip| ip == "None")
    }

    /// `clusterIPs` follows `clusterIP` where a client set or changed only that.
    pub fn normalize(&mut self, old: Option<&Fields>) {
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

    /// Whether nothing about addresses changes in a service that prefers two families: then it keeps what it has, also
    /// when the cluster has got or lost a family.
    pub fn is_settled(&self, old: &Fields) -> bool {
        let prefers = |policy: &Option<String>| policy.as_deref() == Some(PREFER);
        old.kind == self.kind
            && self.needs_ip()
            && prefers(&self.policy)
            && (old.policy.is_none() || prefers(&old.policy))
            && old.ips == self.ips
            && old.families == self.families
    }

    /// The policy, if the client named none.
    pub fn default_policy(&mut self, old: Option<&Fields>) {
        if self.policy.is_none() {
            let inherited = old.and_then(|old| old.policy.clone());
            let usual = if self.ip == "None" && !self.selects { REQUIRE } else { SINGLE };
            self.policy = inherited.or_else(|| Some(usual.to_owned()));
        }
    }

    /// Fills in families and drops what the policy gives up. `configured` are the cluster's families.
    pub fn complete(&mut self, old: Option<&Fields>, configured: &[Family]) -> Result<(), Vec<FieldError>> {
        let mut errors = old.map(|old| self.reduce(old)).unwrap_or_default();
        errors.extend(self.single());
        errors.extend(self.infer(configured));
        if !errors.is_empty() {
            return Err(errors);
        }
        let default = configured.first().map_or(Family::V4, |family| *family).name();
        if self.ip == "None" && !self.selects {
            // Nobody knows what its endpoints will be: it may have both families on any cluster.
            if self.families.is_empty() {
                self.families.push(default.to_owned());
            }
            self.add_other();
            return Ok(());
        }
        let errors = self.configured(configured);
        if !errors.is_empty() {
            return Err(errors);
        }
        if self.families.is_empty() {
            self.families.push(default.to_owned());
        }
        if configured.len() == 2 {
            self.add_other();
        }
        Ok(())
    }

    fn is_single(&self) -> bool {
        self.policy.as_deref() == Some(SINGLE)
    }

    fn add_other(&mut self) {
        if !self.is_single() && self.families.len() == 1 {
            let other = if self.families[0] == Family::V4.name() { Family::V6 } else { Family::V4 };
            self.families.push(other.name().to_owned());
        }
    }

    /// Going from two families to one takes the policy to say so.
    fn reduce(&mut self, old: &Fields) -> Vec<FieldError> {
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

    fn single(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let several = [(self.ips.len(), "cluster IPs"), (self.families.len(), "IP families")];
        for (_, what) in several.into_iter().filter(|(count, _)| self.is_single() && *count == 2) {
            errors.push(self.wrong_policy(&format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            )));
        }
        errors
    }

    /// Addresses say their families.
    fn infer(&mut self, configured: &[Family]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (at, ip) in self.ips.iter().enumerate().take_while(|(_, ip)| *ip != "None") {
            let Some(family) = ip.parse::<IpAddr>().ok().map(Family::of) else { continue };
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

    fn configured(&self, configured: &[Family]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if self.policy.as_deref() == Some(REQUIRE) && configured.len() < 2 {
            errors.push(self.wrong_policy("this cluster is not configured for dual-stack services"));
        }
        for (at, name) in self.families.iter().enumerate() {
            if !Family::named(name).is_some_and(|family| configured.contains(&family)) {
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

    fn service(spec: Value) -> Fields {
        let mut spec = spec;
        let map = meta::object_mut(&mut spec);
        map.entry("type").or_insert_with(|| json!("ClusterIP"));
        map.entry("selector").or_insert_with(|| json!({"a": "b"}));
        Fields::of(&json!({"spec": spec}))
    }

    fn check(spec: Value, old: Option<Value>, configured: &[Family], want: Result<(&str, &[&str]), &str>) {
        let (mut new, old) = (service(spec), old.map(service));
        new.normalize(old.as_ref());
        new.default_policy(old.as_ref());
        let outcome = new.complete(old.as_ref(), configured);
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

    const V4: &[Family] = &[Family::V4];
    const DUAL: &[Family] = &[Family::V6, Family::V4];

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
    fn what_the_cluster_cannot_do_is_said() {
        check(json!({"ipFamilyPolicy": REQUIRE}), None, V4, Err("this cluster is not configured for dual-stack"));
        check(json!({"ipFamilies": ["IPv6"]}), None, V4, Err("spec.ipFamilies[0]"));
        check(json!({"clusterIP": "fd00::1"}), None, V4, Err("IPv6 is not configured on this cluster"));
        let two = json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": SINGLE});
        check(two, None, DUAL, Err("when multiple IP families are specified"));
    }

    #[test]
    fn going_back_to_one_family_takes_a_policy() {
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
