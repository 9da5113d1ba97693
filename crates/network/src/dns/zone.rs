//! The cluster's zone: answers from Services, EndpointSlices and Namespaces by the specification "Kubernetes DNS-Based
//! Service Discovery" 1.1.0.

use std::{net::IpAddr, sync::Arc};

use client::SharedInformer;
use hickory_proto::rr::{
    Name, RData, Record, RecordType,
    rdata::{CNAME, NS, PTR, SOA, SRV, TXT},
};
use k8s_openapi::api::core::v1::Namespace;
use sys::net::IpCidr;

use super::endpoint_records::{EndpointRecords, protocol_name};
use crate::views::{EndpointSliceView, ServiceView, object_key};

/// The version of the specification.
const SCHEMA_VERSION: &str = "1.1.0";
/// Time for which answers may be kept, in seconds.
pub(super) const TTL: u32 = 5;
const WEIGHT: u16 = 100;
const SERVICE_INDEX: &str = "service";
const IP_INDEX: &str = "ip";

/// An answer of the zone.
#[derive(Debug, PartialEq)]
pub(super) enum ZoneAnswer {
    /// Records.
    Records {
        /// The answer section.
        answers: Vec<Record>,
        /// Addresses of targets in the answer section.
        additionals: Vec<Record>,
    },
    /// The name exists, but has no record of the type.
    NoData,
    /// The name does not exist.
    NameError,
    /// An alias of a name that is looked up next.
    Alias(Box<Record>, Name),
    /// The name is in no zone of the cluster.
    NotOurs,
}

/// The zone and the objects that it is made of.
pub(super) struct ClusterZone {
    origin: Name,
    origin_labels: Vec<String>,
    services: SharedInformer<ServiceView>,
    slices: SharedInformer<EndpointSliceView>,
    namespaces: SharedInformer<Namespace>,
    /// Ranges of the cluster, whose reverse names are ours.
    ranges: Vec<IpCidr>,
}

impl ClusterZone {
    pub fn new(
        origin: Name,
        services: SharedInformer<ServiceView>,
        slices: SharedInformer<EndpointSliceView>,
        namespaces: SharedInformer<Namespace>,
        ranges: Vec<IpCidr>,
    ) -> Self {
        slices.add_index(SERVICE_INDEX, |slice| slice.service_key().into_iter().collect());
        slices.add_index(IP_INDEX, |slice| {
            let endpoints = slice.endpoints.iter().flatten();
            endpoints.flat_map(|endpoint| endpoint.addresses.iter().map(|address| address.to_string())).collect()
        });
        services.add_index(IP_INDEX, |service| service.spec.cluster_ips.clone());
        let origin_labels = lowercase_labels(&origin);
        Self { origin, origin_labels, services, slices, namespaces, ranges }
    }

    /// Waits until all objects are known.
    pub async fn wait_for_sync(&self) {
        self.services.wait_for_cache_sync().await;
        self.slices.wait_for_cache_sync().await;
        self.namespaces.wait_for_cache_sync().await;
    }

    /// Looks up a name.
    pub fn lookup(&self, name: &Name, kind: RecordType) -> ZoneAnswer {
        let labels = lowercase_labels(name);
        if let Some(rest) = labels.strip_suffix(self.origin_labels.as_slice()) {
            let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
            return self.lookup_in_zone(name, &rest, kind);
        }
        match labels.as_slice() {
            [.., zone, top] if top == "arpa" && (zone == "in-addr" || zone == "ip6") => self.lookup_reverse(name, kind),
            _ => ZoneAnswer::NotOurs,
        }
    }

    /// The record that names the zone's authority, for answers without records.
    pub fn soa(&self) -> Record {
        let name = |label: &str| Name::from_ascii(label).and_then(|name| name.append_domain(&self.origin));
        let (server, mail) = (name("ns.dns"), name("hostmaster"));
        let (server, mail) = (server.unwrap_or_else(|_| Name::root()), mail.unwrap_or_else(|_| Name::root()));
        let serial = self.services.latest_resource_version().max(self.slices.latest_resource_version()) as u32;
        let data = SOA::new(server, mail, serial, 7200, 1800, 86400, TTL);
        Record::from_rdata(self.origin.clone(), TTL, RData::SOA(data))
    }

    fn lookup_in_zone(&self, name: &Name, labels: &[&str], kind: RecordType) -> ZoneAnswer {
        match labels {
            [] => self.apex(name, kind),
            ["dns-version"] => {
                let text = RData::TXT(TXT::new(vec![SCHEMA_VERSION.into()]));
                records_of_type(vec![Record::from_rdata(name.clone(), TTL, text)], kind)
            }
            ["svc"] | ["pod"] | ["dns"] => ZoneAnswer::NoData,
            ["ns", "dns"] => self.service(name, "kube-system", "kube-dns", kind),
            [namespace, "svc" | "pod"] if self.has_namespace(namespace) => ZoneAnswer::NoData,
            [address, namespace, "pod"] => self.pod(name, address, namespace, kind),
            [service, namespace, "svc"] => self.service(name, namespace, service, kind),
            [endpoint, service, namespace, "svc"] => self.endpoint(name, [endpoint, service, namespace], kind),
            [port, protocol, service, namespace, "svc"] => self.port(name, [port, protocol, service, namespace], kind),
            _ => ZoneAnswer::NameError,
        }
    }

    fn apex(&self, name: &Name, kind: RecordType) -> ZoneAnswer {
        let server = Name::from_ascii("ns.dns").and_then(|server| server.append_domain(&self.origin));
        let data = server.map(|server| RData::NS(NS(server)));
        let mut records = vec![self.soa()];
        records.extend(data.map(|data| Record::from_rdata(name.clone(), TTL, data)));
        records_of_type(records, kind)
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.get("", namespace).is_some()
    }

    /// A pod's address in its name, `10-42-0-7`: it is taken at its word, for namespaces that exist.
    fn pod(&self, name: &Name, address: &str, namespace: &str, kind: RecordType) -> ZoneAnswer {
        let ip = address.replace('-', ".").parse::<IpAddr>().or_else(|_| address.replace('-', ":").parse());
        match ip {
            Ok(ip) if self.has_namespace(namespace) => {
                records_of_type(vec![Record::from_rdata(name.clone(), TTL, RData::from(ip))], kind)
            }
            _ => ZoneAnswer::NameError,
        }
    }

    fn service(&self, name: &Name, namespace: &str, service: &str, kind: RecordType) -> ZoneAnswer {
        let Some(service) = self.services.get(namespace, service) else { return ZoneAnswer::NameError };
        if service.is_external_name() {
            return external_name(name, &service);
        }
        if kind == RecordType::SRV {
            return self.service_ports(name, name, &service, |_, _| true);
        }
        let addresses = match service.is_headless() {
            true => {
                let endpoints = self.endpoints(&service);
                if endpoints.is_empty() {
                    // A headless service without endpoints does not exist for DNS.
                    return ZoneAnswer::NameError;
                }
                endpoints.addresses()
            }
            false => service.spec.cluster_ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
        };
        records_of_type(address_records(name, addresses), kind)
    }

    fn endpoints(&self, service: &ServiceView) -> EndpointRecords {
        EndpointRecords::collect(&self.slices.by_index(SERVICE_INDEX, &object_key(&service.metadata)))
    }

    fn endpoint(&self, name: &Name, path: [&str; 3], kind: RecordType) -> ZoneAnswer {
        let [endpoint, service, namespace] = path;
        let Some(service) = self.services.get(namespace, service) else { return ZoneAnswer::NameError };
        if let Some(protocol) = endpoint.strip_prefix('_') {
            let known = service.spec.ports.iter().any(|port| protocol_name(port.protocol.as_deref()) == protocol);
            return if known { ZoneAnswer::NoData } else { ZoneAnswer::NameError };
        }
        if !service.is_headless() {
            return ZoneAnswer::NameError;
        }
        let addresses = self.endpoints(&service).addresses_of_host(endpoint);
        match addresses.is_empty() {
            true => ZoneAnswer::NameError,
            false => records_of_type(address_records(name, addresses), kind),
        }
    }

    fn port(&self, name: &Name, path: [&str; 4], kind: RecordType) -> ZoneAnswer {
        let [port, protocol, service, namespace] = path;
        let (Some(port), Some(protocol)) = (port.strip_prefix('_'), protocol.strip_prefix('_')) else {
            return ZoneAnswer::NameError;
        };
        let Some(service) = self.services.get(namespace, service) else { return ZoneAnswer::NameError };
        let matches = |name: &str, transport: &str| name == port && transport == protocol;
        match self.service_ports(
            name,
            &name.trim_to(usize::from(name.num_labels()).saturating_sub(2)),
            &service,
            matches,
        ) {
            ZoneAnswer::Records { .. } if kind != RecordType::SRV => ZoneAnswer::NoData,
            answer => answer,
        }
    }

    /// SRV records of the ports that `wanted` selects by name and protocol, with the addresses of their targets.
    fn service_ports(
        &self,
        owner: &Name,
        service_name: &Name,
        service: &ServiceView,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> ZoneAnswer {
        let srv = |port: u16, target: &Name| {
            Record::from_rdata(owner.clone(), TTL, RData::SRV(SRV::new(0, WEIGHT, port, target.clone())))
        };
        let mut answers = Vec::new();
        let mut additionals = Vec::new();
        if service.is_headless() {
            for (host, address, ports) in self.endpoints(service).hosts() {
                let Ok(target) = service_name.prepend_label(host.as_bytes()) else { continue };
                let selected = ports.iter().filter(|(name, protocol, _)| wanted(name, protocol));
                let before = answers.len();
                answers.extend(selected.map(|(_, _, number)| srv(*number, &target)));
                if answers.len() > before {
                    additionals.extend(address_records(&target, vec![address]));
                }
            }
        } else if !service.is_external_name() {
            let selected = service.spec.ports.iter();
            let selected =
                selected.filter(|port| wanted(&port.name.to_lowercase(), protocol_name(port.protocol.as_deref())));
            answers.extend(selected.map(|port| srv(port.port, service_name)));
            let ips = service.spec.cluster_ips.iter().filter_map(|ip| ip.parse().ok()).collect();
            additionals = address_records(service_name, ips);
        }
        match answers.is_empty() {
            true => ZoneAnswer::NameError,
            false => ZoneAnswer::Records { answers, additionals },
        }
    }

    fn lookup_reverse(&self, name: &Name, kind: RecordType) -> ZoneAnswer {
        let Ok(network) = name.parse_arpa_name() else { return ZoneAnswer::NotOurs };
        let ip = network.addr();
        let is_host = network.prefix_len() == network.max_prefix_len();
        let targets = if is_host { self.names_of_address(ip) } else { Vec::new() };
        if !targets.is_empty() {
            let record = |target| Record::from_rdata(name.clone(), TTL, RData::PTR(PTR(target)));
            return records_of_type(targets.into_iter().map(record).collect(), kind);
        }
        // Asking others about addresses of the cluster would tell them of it and never help.
        match self.ranges.iter().any(|range| range.contains(ip)) {
            true if is_host => ZoneAnswer::NameError,
            true => ZoneAnswer::NoData,
            false => ZoneAnswer::NotOurs,
        }
    }

    /// The names that an address stands for: that of its service, or those of its endpoint with a host name.
    fn names_of_address(&self, ip: IpAddr) -> Vec<Name> {
        let text = ip.to_string();
        let service_name = |namespace: &str, name: &str| {
            Name::from_ascii(format!("{name}.{namespace}.svc")).and_then(|name| name.append_domain(&self.origin)).ok()
        };
        let key_of = |service: &Arc<ServiceView>| {
            let metadata = &service.metadata;
            service_name(
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
            )
        };
        let services: Vec<Name> = self.services.by_index(IP_INDEX, &text).iter().filter_map(key_of).collect();
        if !services.is_empty() {
            return services;
        }
        let mut names = Vec::new();
        for slice in self.slices.by_index(IP_INDEX, &text) {
            let key = slice.service_key().unwrap_or_default();
            let Some((namespace, service)) = key.split_once('/') else { continue };
            if !self.services.get(namespace, service).is_some_and(|service| service.is_headless()) {
                continue;
            }
            let endpoints = slice.endpoints.iter().flatten();
            let own = endpoints.filter(|endpoint| endpoint.addresses.iter().any(|address| **address == *text));
            for host in own.filter_map(|endpoint| endpoint.hostname.as_deref()) {
                let name = service_name(namespace, service).and_then(|name| name.prepend_label(host.as_bytes()).ok());
                names.extend(name);
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn external_name(name: &Name, service: &ServiceView) -> ZoneAnswer {
    let target = service.spec.external_name.as_deref().unwrap_or_default();
    let Ok(mut target) = Name::from_str_relaxed(target) else { return ZoneAnswer::NoData };
    target.set_fqdn(true);
    let record = Record::from_rdata(name.clone(), TTL, RData::CNAME(CNAME(target.clone())));
    ZoneAnswer::Alias(Box::new(record), target)
}

fn records_of_type(mut records: Vec<Record>, kind: RecordType) -> ZoneAnswer {
    records.retain(|record| record.record_type() == kind);
    match records.is_empty() {
        true => ZoneAnswer::NoData,
        false => ZoneAnswer::Records { answers: records, additionals: Vec::new() },
    }
}

fn address_records(name: &Name, addresses: Vec<IpAddr>) -> Vec<Record> {
    addresses.into_iter().map(|ip| Record::from_rdata(name.clone(), TTL, RData::from(ip))).collect()
}

fn lowercase_labels(name: &Name) -> Vec<String> {
    name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect()
}
