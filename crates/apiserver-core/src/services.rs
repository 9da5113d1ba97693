//! Resolves Services to the endpoint addresses behind their ports.
//!
//! Webhooks and aggregated API servers are named by Service. Cluster IPs need not be routed on this machine, so the
//! server connects to the endpoints of the EndpointSlices. [`Services`] is an index over the watch cache.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{Value, meta, status::Status};
use store::WatchCache;

use crate::{
    cache_index::{CacheIndex, Indexer},
    object_key::{self, ObjectKey},
};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// A Service that does not lead to an endpoint.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The Service does not exist.
    #[error("service {0:?} not found")]
    NotFound(String),
    /// The Service has no such port.
    #[error("no service port {0} found for service {1:?}")]
    NoPort(u16, String),
    /// The Service has no ready endpoint.
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

/// The Services of the cluster and their endpoints.
pub struct ServiceResolver {
    index: CacheIndex<ServiceIndexer>,
}

/// The parts of a Service that resolution needs.
#[derive(Debug)]
pub struct ServiceEntry {
    /// Service type: `ClusterIP`, `ExternalName`, …
    pub service_type: String,
    external_name: String,
    cluster_ip: String,
    /// The preferred IP family.
    family: String,
    ports: Vec<(i64, String)>,
}

/// The parts of an EndpointSlice that resolution needs.
#[derive(Debug)]
pub struct EndpointSlice {
    service: String,
    family: String,
    ports: Vec<(String, Option<u16>)>,
    /// The addresses of ready endpoints.
    ready: Vec<String>,
}

type NamespacedName = (String, String);

#[derive(Default)]
struct ServiceIndexer {
    services: HashMap<NamespacedName, Arc<ServiceEntry>>,
    /// By namespace and name of the slice.
    slices: HashMap<NamespacedName, Arc<EndpointSlice>>,
    /// By namespace and name of the Service, then by slice name.
    slices_by_service: HashMap<NamespacedName, BTreeMap<String, Arc<EndpointSlice>>>,
}

impl ServiceResolver {
    /// Indexes the Services and EndpointSlices of the watch cache.
    pub fn new(cache: &Arc<WatchCache>) -> Result<Self, store::StoreError> {
        let unusable = |status: Status| store::StoreError::Unusable(status.message);
        let services = object_key::find_resource("", "v1", "services").map_err(unusable)?;
        let slices = object_key::find_resource("discovery.k8s.io", "v1", "endpointslices").map_err(unusable)?;
        Ok(Self { index: CacheIndex::new(cache, &[services, slices], ServiceIndexer::default())? })
    }

    /// Returns a Service and its EndpointSlices.
    pub fn find_service(&self, namespace: &str, name: &str) -> Option<(Arc<ServiceEntry>, Vec<Arc<EndpointSlice>>)> {
        self.index.read(|indexer| indexer.find_service(namespace, name))
    }

    /// Resolves a port of a Service to endpoint addresses, in random order, and the target port.
    pub async fn resolve_endpoints(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<(Vec<String>, u16), ResolveError> {
        match self.index.read(|indexer| indexer.resolve_endpoints(namespace, name, port)) {
            // The Service may have been written a moment ago.
            Err(_) => self.index.read_fresh(|indexer| indexer.resolve_endpoints(namespace, name, port)).await,
            found => found,
        }
    }
}

impl ServiceEntry {
    /// The name of a port.
    pub fn port_name(&self, port: u16) -> Option<&str> {
        self.ports.iter().find(|(number, _)| *number == i64::from(port)).map(|(_, name)| name.as_str())
    }
}

impl EndpointSlice {
    /// The ready addresses and the number of a named port; `None` if either is missing.
    fn ready_endpoints(&self, port: &str) -> Option<(&[String], u16)> {
        let found = self.ports.iter().find(|(name, number)| name == port && number.is_some())?.1?;
        (!self.ready.is_empty()).then_some((&self.ready, found))
    }

    /// Whether the slice has the port and a ready endpoint.
    pub fn is_ready(&self, port: &str) -> bool {
        self.ready_endpoints(port).is_some()
    }
}

impl ServiceIndexer {
    fn find_service(&self, namespace: &str, name: &str) -> Option<(Arc<ServiceEntry>, Vec<Arc<EndpointSlice>>)> {
        let key = (namespace.to_owned(), name.to_owned());
        let service = self.services.get(&key)?.clone();
        let slices = self.slices_by_service.get(&key).map(|slices| slices.values().cloned().collect());
        Some((service, slices.unwrap_or_default()))
    }

    fn resolve_endpoints(&self, namespace: &str, name: &str, port: u16) -> Result<(Vec<String>, u16), ResolveError> {
        let Some((service, mut slices)) = self.find_service(namespace, name) else {
            return Err(ResolveError::NotFound(name.to_owned()));
        };
        if service.service_type == "ExternalName" {
            return Ok((vec![service.external_name.clone()], port));
        }
        let Some(port_name) = service.port_name(port) else {
            return Err(ResolveError::NoPort(port, name.to_owned()));
        };
        slices.sort_by_key(|slice| slice.family != service.family);
        if let Some((addresses, port)) = slices.iter().find_map(|slice| slice.ready_endpoints(port_name)) {
            let mut addresses = addresses.to_vec();
            fastrand::shuffle(&mut addresses);
            return Ok((addresses, port));
        }
        match service.cluster_ip.as_str() {
            "" | "None" => Err(ResolveError::NoEndpoints(name.to_owned())),
            address => Ok((vec![address.to_owned()], port)),
        }
    }

    fn remove_slice(&mut self, key: &NamespacedName) {
        let Some(slice) = self.slices.remove(key) else { return };
        let service = (key.0.clone(), slice.service.clone());
        if let Some(slices) = self.slices_by_service.get_mut(&service) {
            slices.remove(&key.1);
            if slices.is_empty() {
                self.slices_by_service.remove(&service);
            }
        }
    }
}

impl Indexer for ServiceIndexer {
    fn insert_object(&mut self, object_key: ObjectKey<'_>, object: &Value) {
        let key = (object_key.namespace.to_owned(), object_key.name.to_owned());
        if object_key.resource.name == "services" {
            self.services.insert(key, Arc::new(parse_service(object)));
            return;
        }
        self.remove_slice(&key);
        let slice = Arc::new(parse_slice(object));
        let slices = self.slices_by_service.entry((key.0.clone(), slice.service.clone())).or_default();
        slices.insert(key.1.clone(), slice.clone());
        self.slices.insert(key, slice);
    }

    fn remove_object(&mut self, object_key: ObjectKey<'_>) {
        let key = (object_key.namespace.to_owned(), object_key.name.to_owned());
        if object_key.resource.name == "services" {
            self.services.remove(&key);
        } else {
            self.remove_slice(&key);
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

fn parse_service(object: &Value) -> ServiceEntry {
    let text = |field: &str| meta::string_at(object, &["spec", field]).to_owned();
    let port = |port: &Value| (meta::integer_at(port, &["port"]), meta::string_at(port, &["name"]).to_owned());
    let family = meta::list_at(object, &["spec", "ipFamilies"]).first().and_then(Value::as_str).unwrap_or_default();
    ServiceEntry {
        service_type: text("type"),
        external_name: text("externalName"),
        cluster_ip: text("clusterIP"),
        family: family.to_owned(),
        ports: meta::list_at(object, &["spec", "ports"]).iter().map(port).collect(),
    }
}

fn parse_slice(object: &Value) -> EndpointSlice {
    let port = |port: &Value| {
        let number =
            meta::value_at(port, &["port"]).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
        (meta::string_at(port, &["name"]).to_owned(), number)
    };
    let ready =
        meta::list_at(object, &["endpoints"]).iter().filter(|endpoint| endpoint["conditions"]["ready"] != false);
    // Consumers use the first address of an endpoint, as the API documents.
    let address = |endpoint: &Value| meta::list_at(endpoint, &["addresses"]).first()?.as_str().map(str::to_owned);
    EndpointSlice {
        service: meta::string_at(object, &["metadata", "labels", SERVICE_LABEL]).to_owned(),
        family: meta::string_at(object, &["addressType"]).to_owned(),
        ports: meta::list_at(object, &["ports"]).iter().map(port).collect(),
        ready: ready.filter_map(address).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn indexer_with(service: Value, slices: &[Value]) -> ServiceIndexer {
        let mut indexer = ServiceIndexer::default();
        let resource = |group, name| object_key::find_resource(group, "v1", name).unwrap();
        indexer.insert_object(
            ObjectKey { resource: resource("", "services"), namespace: "n", name: "s" },
            &json!({"spec": service}),
        );
        for (at, slice) in slices.iter().enumerate() {
            let mut slice = slice.clone();
            slice["metadata"] = json!({"labels": {SERVICE_LABEL: "s"}});
            let name = format!("s-{at}");
            let resource = resource("discovery.k8s.io", "endpointslices");
            indexer.insert_object(ObjectKey { resource, namespace: "n", name: &name }, &slice);
        }
        indexer
    }

    fn check_endpoints(service: Value, slices: &[Value], want: Result<(&[&str], u16), &str>) {
        let got = indexer_with(service, slices).resolve_endpoints("n", "s", 443);
        let got = got.map(|(mut addresses, port)| {
            addresses.sort();
            (addresses, port)
        });
        let want = want.map(|(addresses, port)| (addresses.iter().map(|&one| one.to_owned()).collect(), port));
        assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned));
    }

    #[test]
    fn services_resolve_to_ready_endpoints() {
        let service = json!({"type": "ClusterIP", "clusterIP": "None", "ipFamilies": ["IPv4"],
            "ports": [{"name": "a", "port": 443}]});
        let slice = |family: &str, name: &str, ips: &[(&str, bool)]| {
            let endpoint = |(ip, ready): &(&str, bool)| json!({"addresses": [ip], "conditions": {"ready": ready}});
            json!({"addressType": family, "ports": [{"name": name, "port": 8443}],
                "endpoints": ips.iter().map(endpoint).collect::<Vec<_>>()})
        };
        let none = Err("no endpoints available for service \"s\"");
        check_endpoints(service.clone(), &[], none);
        check_endpoints(service.clone(), &[slice("IPv4", "a", &[("10.0.0.1", false)])], none);
        check_endpoints(service.clone(), &[slice("IPv4", "b", &[("10.0.0.1", true)])], none);
        let both = slice("IPv4", "a", &[("10.0.0.1", true), ("10.0.0.2", true)]);
        let six = slice("IPv6", "a", &[("fd00::1", true)]);
        check_endpoints(service.clone(), &[six.clone(), both], Ok((&["10.0.0.1", "10.0.0.2"], 8443)));
        check_endpoints(service, &[six], Ok((&["fd00::1"], 8443)));
        let external = json!({"type": "ExternalName", "externalName": "e.org"});
        check_endpoints(external, &[], Ok((&["e.org"], 443)));
        let other = json!({"type": "ClusterIP", "clusterIP": "10.9.9.9", "ports": [{"port": 80}]});
        check_endpoints(other, &[], Err("no service port 443 found for service \"s\""));
    }

    #[test]
    fn deleted_slices_are_not_resolved() {
        let slice = json!({"ports": [{"name": "", "port": 1}], "endpoints": [{"addresses": ["10.0.0.1"]}]});
        let service = json!({"type": "ClusterIP", "clusterIP": "None", "ports": [{"port": 443}]});
        let mut indexer = indexer_with(service, &[slice]);
        assert_eq!(indexer.resolve_endpoints("n", "s", 443), Ok((vec!["10.0.0.1".to_owned()], 1)));
        let resource = object_key::find_resource("discovery.k8s.io", "v1", "endpointslices").unwrap();
        indexer.remove_object(ObjectKey { resource, namespace: "n", name: "s-0" });
        assert!(indexer.resolve_endpoints("n", "s", 443).is_err() && indexer.slices_by_service.is_empty());
    }
}
