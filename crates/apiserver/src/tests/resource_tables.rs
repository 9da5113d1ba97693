//! The tables that tie a resource to its etcd prefix and its APIService agree with the schema.

use std::collections::BTreeSet;

use api::{meta, schema::schema};
use apiserver_core::{document, resource_config::ApiResourceConfig};
use store::KeyLayout;

use crate::bootstrap::local_apis;

/// Groups whose resources kube-apiserver stores under the group.
const STORED_UNDER_GROUP: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

#[test]
fn every_stored_resource_has_the_etcd_prefix_of_kube_apiserver() {
    let layout = KeyLayout::Upstream("/registry".into());
    for resource in schema().resources().iter().filter(|resource| resource.verbs.contains(&"list")) {
        let (group, plural) = resource.storage_resource();
        if group.is_empty() || STORED_UNDER_GROUP.contains(&group) {
            continue;
        }
        let etcd_key = layout.to_etcd(&document::storage_key(resource, "", ""));
        assert!(
            !etcd_key.contains(group),
            "{group}/{plural} lacks a row in crates/store/src/etcd/layout.rs: {etcd_key}"
        );
    }
}

#[test]
fn every_served_group_version_has_an_api_service() {
    let served = ApiResourceConfig::default();
    let group_versions = schema().resources().iter().map(|resource| (resource.group, resource.version));
    let want: BTreeSet<String> = group_versions
        .filter(|(group, version)| served.includes(group, version) && *group != "apiregistration.k8s.io")
        .map(|(group, version)| format!("{version}.{group}"))
        .collect();
    let objects = local_apis::api_service_objects().unwrap();
    let got: BTreeSet<String> = objects.iter().map(|object| meta::name(object).to_owned()).collect();
    assert_eq!(got, want);
}
