//! The hostname and domain of a pod: by `hostname`, `subdomain`, `hostnameOverride` and `setHostnameAsFQDN`.

use k8s_openapi::api::core::v1::Pod;

use crate::context;

/// Maximum length of a hostname that is one label.
const MAX_HOSTNAME_LENGTH: usize = 63;
/// Maximum length of a name in the kernel's `nodename` field.
const MAX_FQDN_LENGTH: usize = 64;

/// The fully qualified name of a pod does not fit into the kernel's field.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({MAX_FQDN_LENGTH} characters \
     is the max, {} characters requested)", fqdn.len()
)]
pub struct FqdnTooLong {
    /// The name.
    pub fqdn: String,
}

/// The names of a pod on the network.
#[derive(Clone, Debug, PartialEq)]
pub struct PodHostname {
    /// The hostname.
    pub hostname: String,
    /// The domain; empty without a subdomain.
    pub domain: String,
    is_fqdn: bool,
}

impl PodHostname {
    /// Computes the names of a pod in a cluster with this domain.
    pub fn of_pod(pod: &Pod, cluster_domain: &str) -> Self {
        let spec = pod.spec.as_ref();
        let given = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        if let Some(name) = spec.and_then(|spec| spec.hostname_override.as_ref()) {
            return Self { hostname: truncate_hostname(name), domain: String::new(), is_fqdn: false };
        }
        let requested = given(spec.and_then(|spec| spec.hostname.as_ref()));
        let subdomain = given(spec.and_then(|spec| spec.subdomain.as_ref()));
        Self {
            hostname: truncate_hostname(&requested.unwrap_or_else(|| context::pod_name(pod).into())),
            domain: subdomain
                .map(|subdomain| format!("{subdomain}.{}.svc.{cluster_domain}", context::pod_namespace(pod)))
                .unwrap_or_default(),
            is_fqdn: spec.and_then(|spec| spec.set_hostname_as_fqdn) == Some(true),
        }
    }

    /// The name that the kernel gets: the hostname, or with `setHostnameAsFQDN` the name with its domain.
    pub fn kernel_hostname(&self) -> Result<String, FqdnTooLong> {
        if self.domain.is_empty() || !self.is_fqdn {
            return Ok(self.hostname.clone());
        }
        let fqdn = format!("{}.{}", self.hostname, self.domain);
        if fqdn.len() > MAX_FQDN_LENGTH { Err(FqdnTooLong { fqdn }) } else { Ok(fqdn) }
    }
}

fn truncate_hostname(name: &str) -> String {
    if name.len() <= MAX_HOSTNAME_LENGTH {
        return name.to_owned();
    }
    let truncated: String = name.chars().take(MAX_HOSTNAME_LENGTH).collect();
    truncated.trim_end_matches(['-', '.']).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hostname(name: &str, spec: Value) -> PodHostname {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": spec });
        PodHostname::of_pod(&serde_json::from_value(pod).unwrap(), "cluster.local")
    }

    #[test]
    fn long_hostname_is_truncated() {
        assert_eq!(hostname(&format!("{}-x", "a".repeat(62)), json!({})).hostname, "a".repeat(62));
    }

    #[test]
    fn subdomain_makes_the_domain() {
        let pod = hostname("web", json!({ "hostname": "h", "subdomain": "sub" }));
        assert_eq!((pod.hostname.as_str(), pod.domain.as_str()), ("h", "sub.ns.svc.cluster.local"));
        assert_eq!(pod.kernel_hostname().unwrap(), "h");
    }

    #[test]
    fn fully_qualified_hostname_must_fit_into_the_kernel() {
        let fqdn = |subdomain: &str| {
            hostname("web", json!({ "subdomain": subdomain, "setHostnameAsFQDN": true })).kernel_hostname()
        };
        assert_eq!(fqdn("sub").unwrap(), "web.sub.ns.svc.cluster.local");
        assert!(fqdn(&"s".repeat(60)).unwrap_err().to_string().contains("is too long (64 characters is the max"));
        assert_eq!(hostname("web", json!({ "setHostnameAsFQDN": true })).kernel_hostname().unwrap(), "web");
    }

    #[test]
    fn override_wins_over_hostname_and_subdomain() {
        let pod = hostname("web", json!({ "hostnameOverride": "a.b", "hostname": "h", "subdomain": "sub" }));
        assert_eq!((pod.hostname.as_str(), pod.domain.as_str()), ("a.b", ""));
    }
}
