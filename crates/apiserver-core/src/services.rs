//! Where services lead: the addresses behind their ports.
//!
//! Webhooks and aggregated API servers are named by service. Nobody routes service addresses on this server's behalf, so it goes
//! where the endpoint slices say. [`Services`] is a view in step with the watch cache; reading it decodes nothing twice.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{Value, meta, status::Status};
use store::WatchCache;

use crate::{
    cache_index::{CacheIndex, Indexer},
    loopback,
    loopback::ObjectKey,
};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The services of a cluster, and what is behind them.
pub struct Services {
    live: CacheIndex<Known>,
}

/// What is known of a service.
#[derive(Debug)]
pub struct Service {
    /// `ClusterIP`, `ExternalName`, …
    pub kind: String,
    external_name: String,
    cluster_ip: String,
    /// The family that it prefers.
    family: String,
    ports: Vec<(i64, String)>,
}

/// What is known of an endpoint slice.
#[derive(Debug)]
pub struct Slice {
    service: String,
    family: String,
    ports: Vec<(String, Option<u16>)>,
    /// The address of each endpoint that is ready.
    ready: Vec<String>,
}

type Key = (String, String);

#[derive(Default)]
struct Known {
    services: HashMap<Key, Arc<Service>>,
    /// By the namespace and name of the slice.
    slices: HashMap<Key, Arc<Slice>>,
    /// By the namespace and name of the service, and the slice's name.
    behind: HashMap<Key, BTreeMap<String, Arc<Slice>>>,
}

impl Services {
    /// The services of a store.
    pub fn new(cache: &Arc<WatchCache>) -> Result<Self, store::StoreError> {
        let unusable = |status: Status| store::StoreError::Unusable(status.message);
        let services = loopback::find_resource("", "v1", "services").map_err(unusable)?;
        let slices = loopback::find_resource("discovery.k8s.io", "v1", "endpointslices").map_err(unusable)?;
        Ok(Self { live: CacheIndex::new(cache, &[services, slices], Known::default())? })
    }

    /// A service, and the slices behind it.
    pub fn find(&self, namespace: &str, name: &str) -> Option<(Arc<Service>, Vec<Arc<Slice>>)> {
        self.live.read(|known| known.find(namespace, name))
    }

    /// The addresses behind a port of a service, and their port; in no order, so that all of them get work.
    pub async fn endpoints(&self, namespace: &str, name: &str, port: u16) -> Result<(Vec<String>, u16), String> {
        match self.live.read(|known| known.endpoints(namespace, name, port)) {
            // It may have been written a moment ago.
            Err(_) => self.live.read_fresh(|known| known.endpoints(namespace, name, port)).await,
            found => found,
        }
    }
}

impl Service {
    /// The name of one of its ports.
    pub fn port_name(&self, port: u16) -> Option<&str> {
        self.ports.iter().find(|(number, _)| *number == i64::from(port)).map(|(_, name)| name.as_str())
    }
}

impl Slice {
    /// Where its endpoints listen that are ready, if it knows a port of that name and there are any.
    fn ready(&self, port: &str) -> Option<(&[String], u16)> {
        let found = self.ports.iter().find(|(name, number)| name == port && number.is_some())?.1?;
        (!self.ready.is_empty()).then_some((&self.ready, found))
    }

    /// Whether it has an endpoint that is ready, and a port of that name.
    pub fn is_ready(&self, port: &str) -> bool {
        self.ready(port).is_some()
    }
}

impl Known {
    fn find(&self, namespace: &str, name: &str) -> Option<(Arc<Service>, Vec<Arc<Slice>>)> {
        let key = (namespace.to_owned(), name.to_owned());
        let service = self.services.get(&key)?.clone();
        let slices = self.behind.get(&key).map(|slices| slices.values().cloned().collect());
        Some((service, slices.unwrap_or_default()))
    }

    fn endpoints(&self, namespace: &str, name: &str, port: u16) -> Result<(Vec<String>, u16), String> {
        let Some((service, mut slices)) = self.find(namespace, name) else {
            return Err(format!("service {name:?} not found"));
        };
        if service.kind == "ExternalName" {
            return Ok((vec![service.external_name.clone()], port));
        }
        let Some(wanted) = service.port_name(port) else {
            return Err(format!("no service port {port} found for service {name:?}"));
        };
        slices.sort_by_key(|slice| slice.family != service.family);
        if let Some((addresses, port)) = slices.iter().find_map(|slice| slice.ready(wanted)) {
            let mut addresses = addresses.to_vec();
            fastrand::shuffle(&mut addresses);
            return Ok((addresses, port));
        }
        match service.cluster_ip.as_str() {
            "" | "None" => Err(format!("no endpoints available for service {name:?}")),
            address => Ok((vec![address.to_owned()], port)),
        }
    }

    fn forget_slice(&mut self, key: &Key) {
        let Some(slice) = self.slices.remove(key) else { return };
        let service = (key.0.clone(), slice.service.clone());
        if let Some(behind) = self.behind.get_mut(&service) {
            behind.remove(&key.1);
            if behind.is_empty() {
                self.behind.remove(&service);
            }
        }
    }
}

impl Indexer for Known {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        let key = (place.namespace.to_owned(), place.name.to_owned());
        if place.resource.name == "services" {
            self.services.insert(key, Arc::new(service(object)));
            return;
        }
        self.forget_slice(&key);
        let slice = Arc::new(slice(object));
        let behind = self.behind.entry((key.0.clone(), slice.service.clone())).or_default();
        behind.insert(key.1.clone(), slice.clone());
        self.slices.insert(key, slice);
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        let key = (place.namespace.to_owned(), place.name.to_owned());
        if place.resource.name == "services" {
            self.services.remove(&key);
        } else {
            self.forget_slice(&key);
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

fn service(object: &Value) -> Service {
    let text = |field: &str| meta::string_at(object, &["spec", field]).to_owned();
    let port = |port: &Value| (meta::integer_at(port, &["port"]), meta::string_at(port, &["name"]).to_owned());
    let family = meta::list_at(object, &["spec", "ipFamilies"]).first().and_then(Value::as_str).unwrap_or_default();
    Service {
        kind: text("type"),
        external_name: text("externalName"),
        cluster_ip: text("clusterIP"),
        family: family.to_owned(),
        ports: meta::list_at(object, &["spec", "ports"]).iter().map(port).collect(),
    }
}

fn slice(object: &Value) -> Slice {
    let port = |port: &Value| {
        let number =
            meta::value_at(port, &["port"]).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
        (meta::string_at(port, &["name"]).to_owned(), number)
    };
    let ready =
        meta::list_at(object, &["endpoints"]).iter().filter(|endpoint| endpoint["conditions"]["ready"] != false);
    // An endpoint has several addresses only in theory: the first is the one that counts.
    let address = |endpoint: &Value| meta::list_at(endpoint, &["addresses"]).first()?.as_str().map(str::to_owned);
    Slice {
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

    fn known(service: Value, slices: &[Value]) -> Known {
        let mut known = Known::default();
        let resource = |group, name| loopback::find_resource(group, "v1", name).unwrap();
        known.insert_object(
            ObjectKey { resource: resource("", "services"), namespace: "n", name: "s" },
            &json!({"spec": service}),
        );
        for (at, slice) in slices.iter().enumerate() {
            let mut slice = slice.clone();
            slice["metadata"] = json!({"labels": {SERVICE_LABEL: "s"}});
            let name = format!("s-{at}");
            let resource = resource("discovery.k8s.io", "endpointslices");
            known.insert_object(ObjectKey { resource, namespace: "n", name: &name }, &slice);
        }
        known
    }

    fn check(service: Value, slices: &[Value], want: Result<(&[&str], u16), &str>) {
        let got = known(service, slices).endpoints("n", "s", 443);
        let got = got.map(|(mut addresses, port)| {
            addresses.sort();
            (addresses, port)
        });
        let want = want.map(|(addresses, port)| (addresses.iter().map(|&one| one.to_owned()).collect(), port));
        assert_eq!(got, want.map_err(str::to_owned));
    }

    #[test]
    fn services_lead_to_what_is_ready() {
        let service = json!({"type": "ClusterIP", "clusterIP": "None", "ipFamilies": ["IPv4"],
            "ports": [{"name": "a", "port": 443}]});
        let slice = |family: &str, name: &str, ips: &[(&str, bool)]| {
            let endpoint = |(ip, ready): &(&str, bool)| json!({"addresses": [ip], "conditions": {"ready": ready}});
            json!({"addressType": family, "ports": [{"name": name, "port": 8443}],
                "endpoints": ips.iter().map(endpoint).collect::<Vec<_>>()})
        };
        let none = Err("no endpoints available for service \"s\"");
        check(service.clone(), &[], none);
        check(service.clone(), &[slice("IPv4", "a", &[("10.0.0.1", false)])], none);
        check(service.clone(), &[slice("IPv4", "b", &[("10.0.0.1", true)])], none);
        let both = slice("IPv4", "a", &[("10.0.0.1", true), ("10.0.0.2", true)]);
        let six = slice("IPv6", "a", &[("fd00::1", true)]);
        check(service.clone(), &[six.clone(), both], Ok((&["10.0.0.1", "10.0.0.2"], 8443)));
        check(service, &[six], Ok((&["fd00::1"], 8443)));
        let external = json!({"type": "ExternalName", "externalName": "e.org"});
        check(external, &[], Ok((&["e.org"], 443)));
        let other = json!({"type": "ClusterIP", "clusterIP": "10.9.9.9", "ports": [{"port": 80}]});
        check(other, &[], Err("no service port 443 found for service \"s\""));
    }

    #[test]
    fn what_is_gone_leads_nowhere() {
        let slice = json!({"ports": [{"name": "", "port": 1}], "endpoints": [{"addresses": ["10.0.0.1"]}]});
        let service = json!({"type": "ClusterIP", "clusterIP": "None", "ports": [{"port": 443}]});
        let mut known = known(service, &[slice]);
        assert_eq!(known.endpoints("n", "s", 443), Ok((vec!["10.0.0.1".to_owned()], 1)));
        let resource = loopback::find_resource("discovery.k8s.io", "v1", "endpointslices").unwrap();
        known.remove_object(ObjectKey { resource, namespace: "n", name: "s-0" });
        assert!(known.endpoints("n", "s", 443).is_err() && known.behind.is_empty());
    }
}
