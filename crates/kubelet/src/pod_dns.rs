//! DNS settings of pods: the cluster's DNS, the node's resolvers, or the pod's own, by `dnsPolicy` and `dnsConfig`.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{PodDNSConfigOption, PodSpec};
use runtime::cri::types::DnsConfig;

/// Limits of the C library's resolver that the API applies too.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCH_PATHS: usize = 32;
const MAX_SEARCH_PATH_LENGTH: usize = 253;
const MAX_SEARCH_LIST_LENGTH: usize = 2048;

/// The cluster's DNS as pods use it.
#[derive(Clone, Debug, Default)]
pub struct ClusterDns {
    /// The addresses of the DNS service; empty if there is none.
    pub servers: Vec<IpAddr>,
    /// The cluster's domain; empty adds no search paths.
    pub domain: String,
}

/// DNS settings, and warnings about what had to be left out.
#[derive(Debug, PartialEq)]
pub struct PodDns {
    /// The settings.
    pub config: DnsConfig,
    /// Messages of `DNSConfigForming` events.
    pub warnings: Vec<String>,
}

impl ClusterDns {
    /// Builds the settings of a pod. `resolv_conf` is the node's.
    pub fn settings_of_pod(&self, spec: &PodSpec, namespace: &str, resolv_conf: &str) -> PodDns {
        let host = parse_resolv_conf(resolv_conf);
        let on_host = spec.host_network == Some(true);
        let mut config = match spec.dns_policy.as_deref() {
            Some("None") => DnsConfig::default(),
            Some("Default") => host,
            Some("ClusterFirst") | None if on_host => host,
            // Without a cluster DNS the node's resolvers are used, as upstream does.
            _ if self.servers.is_empty() => host,
            _ => self.cluster_first(host, namespace),
        };
        if let Some(more) = &spec.dns_config {
            config.servers.extend(more.nameservers.iter().flatten().cloned());
            config.searches.extend(more.searches.iter().flatten().cloned());
            omit_duplicates(&mut config.servers);
            omit_duplicates(&mut config.searches);
            merge_options(&mut config.options, more.options.as_deref().unwrap_or_default());
        }
        let warnings = apply_limits(&mut config);
        PodDns { config, warnings }
    }

    fn cluster_first(&self, host: DnsConfig, namespace: &str) -> DnsConfig {
        let domain = &self.domain;
        let mut searches = match domain.is_empty() {
            true => Vec::new(),
            false => vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()],
        };
        searches.extend(host.searches);
        omit_duplicates(&mut searches);
        let servers = self.servers.iter().map(IpAddr::to_string).collect();
        DnsConfig { servers, searches, options: vec!["ndots:5".into()] }
    }
}

fn omit_duplicates(texts: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
}

/// Adds the pod's options; one of the same name is replaced.
fn merge_options(options: &mut Vec<String>, more: &[PodDNSConfigOption]) {
    for option in more {
        let name = option.name.clone().unwrap_or_default();
        options.retain(|known| known.split(':').next() != Some(&name));
        let value = option.value.as_ref().filter(|value| !value.is_empty());
        options.push(value.map_or(name.clone(), |value| format!("{name}:{value}")));
    }
}

fn apply_limits(config: &mut DnsConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.servers.len() > MAX_NAMESERVERS {
        config.servers.truncate(MAX_NAMESERVERS);
        warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        ));
    }
    let before = config.searches.len();
    config.searches.truncate(MAX_SEARCH_PATHS);
    config.searches.retain(|path| path.len() <= MAX_SEARCH_PATH_LENGTH);
    while config.searches.join(" ").len() > MAX_SEARCH_LIST_LENGTH {
        config.searches.pop();
    }
    if config.searches.len() < before {
        warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        ));
    }
    warnings
}

fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with(['#', ';'])).map(String::from);
        match words.next().as_deref() {
            Some("nameserver") => dns.servers.extend(words.next()),
            Some("search") => {
                let paths = words.filter(|path| path != ".");
                dns.searches = paths.map(|path| path.strip_suffix('.').unwrap_or(&path).to_owned()).collect();
            }
            Some("options") => {
                for option in words {
                    let name = option.split(':').next().unwrap_or_default().to_owned();
                    dns.options.retain(|known| known.split(':').next() != Some(&name));
                    dns.options.push(option);
                }
            }
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOST: &str = "# comment\nnameserver 10.0.0.1\nsearch a.example. b.example\noptions ndots:2 # x\n";

    fn check(spec: Value) -> PodDns {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let dns = ClusterDns { servers: vec!["10.96.0.10".parse().unwrap()], domain: "cluster.local".into() };
        dns.settings_of_pod(&spec, "ns", HOST)
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).into()).collect()
    }

    #[test]
    fn cluster_first_uses_the_cluster_and_keeps_the_hosts_searches() {
        let dns = check(json!({ "dnsPolicy": "ClusterFirst" })).config;
        assert_eq!(dns.servers, texts(&["10.96.0.10"]));
        let searches = ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "a.example", "b.example"];
        assert_eq!((dns.searches, dns.options), (texts(&searches), texts(&["ndots:5"])));
    }

    #[test]
    fn host_network_falls_back_to_the_host() {
        assert_eq!(
            check(json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true })).config.servers,
            texts(&["10.0.0.1"])
        );
        let with_host_net = check(json!({ "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true }));
        assert_eq!(with_host_net.config.servers, texts(&["10.96.0.10"]));
        assert_eq!(check(json!({ "dnsPolicy": "Default" })).config.options, texts(&["ndots:2"]));
    }

    #[test]
    fn pod_settings_are_merged() {
        let own = json!({ "nameservers": ["1.1.1.1"], "searches": ["x", "cluster.local"],
            "options": [{ "name": "ndots", "value": "3" }, { "name": "edns0" }] });
        let none = check(json!({ "dnsPolicy": "None", "dnsConfig": own })).config;
        assert_eq!((none.servers, none.options), (texts(&["1.1.1.1"]), texts(&["ndots:3", "edns0"])));
        let merged = check(json!({ "dnsPolicy": "ClusterFirst", "dnsConfig": own })).config;
        assert_eq!((merged.servers.len(), merged.searches.len()), (2, 6));
        assert_eq!(merged.options, texts(&["ndots:3", "edns0"]));
    }

    #[test]
    fn excess_is_cut_with_a_warning() {
        let own = json!({ "nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"] });
        let dns = check(json!({ "dnsPolicy": "ClusterFirst", "dnsConfig": own }));
        assert_eq!(dns.config.servers.len(), 3);
        assert!(
            dns.warnings[0].contains("the applied nameserver line is: 10.96.0.10 1.1.1.1 2.2.2.2"),
            "{:?}",
            dns.warnings
        );
    }
}
