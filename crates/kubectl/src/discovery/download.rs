//! Discovery over HTTP: the aggregated format, or a document per group-version from older servers.

use std::{fs, path::Path};

use api::{Map, Value};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    ApiGroup, DiscoveryData,
    cache::{parse_group, parse_resource},
    group_version,
};
use crate::{
    errors::CommandResult,
    rest::{RestClient, RestRequest, RestResponse},
};

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The time limit of discovery requests.
const TIMEOUT: i64 = 32_000_000_000;

/// Downloads all groups and resources.
pub fn download(client: &RestClient, http_directory: &str) -> CommandResult<DiscoveryData> {
    let mut data = DiscoveryData::default();
    let mut unknown: Vec<ApiGroup> = Vec::new();
    for path in ["/api", "/apis"] {
        let mut request = RestRequest::get(path).accepting(ACCEPT);
        request.default_timeout = TIMEOUT;
        request.opaque_errors = true;
        let response = match client.send(request.clone()) {
            Err(error) if path == "/api" && error.is_not_found() => continue,
            other => other?,
        };
        store_response(http_directory, &client.url_of(&request), &response);
        let document = response.json()?;
        if !document.is_object() && !document.is_null() {
            let go_type = if path == "/api" { "v1.APIVersions" } else { "v1.APIGroupList" };
            let found = api::json::value_type_name(&document);
            crate::bail!("json: cannot unmarshal {found} into Go value of type {go_type}");
        }
        if document.get("kind").and_then(Value::as_str) == Some("APIGroupDiscoveryList") {
            add_aggregated(&mut data, &document);
        } else {
            unknown.extend(plain_groups(&document));
        }
    }
    for group in unknown {
        add_group(client, &mut data, group);
    }
    Ok(data)
}

/// Keeps an answer as upstream's HTTP cache does: a digest, then the message.
fn store_response(directory: &str, url: &str, response: &RestResponse) {
    let mut message = b"HTTP/2.0 200 OK\r\n".to_vec();
    for (name, value) in &response.headers {
        message.extend_from_slice(format!("{name}: ").as_bytes());
        message.extend_from_slice(value.as_bytes());
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(b"\r\n");
    message.extend_from_slice(&response.body);
    let name: String = Sha256::digest(url.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let content = [Sha256::digest(&message).as_slice(), &message].concat();
    // The cache is an optimisation: a directory that cannot be written is left alone.
    let _ = fs::create_dir_all(directory).and_then(|()| fs::write(Path::new(directory).join(name), content));
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn add_aggregated(data: &mut DiscoveryData, document: &Value) {
    for item in items(document, "items") {
        let name = item.get("metadata").map(|metadata| text(metadata, "name")).unwrap_or_default().to_owned();
        let mut group = ApiGroup { name, ..Default::default() };
        for version in items(item, "versions") {
            let number = text(version, "version").to_owned();
            if text(version, "freshness") == "Stale" {
                let cause = format!("stale GroupVersion discovery: {}", group_version(&group.name, &number));
                data.failures.push((group_version(&group.name, &number), cause));
                continue;
            }
            for resource in items(version, "resources") {
                for entry in aggregated_entries(resource) {
                    data.resources.push(parse_resource(&group.name, &number, entry));
                }
            }
            group.versions.push(number);
        }
        if group.versions.is_empty() {
            continue;
        }
        group.preferred = group.versions.first().cloned().unwrap_or_default();
        data.groups.push(group);
    }
}

/// The entries of a resource and its subresources in the format of old discovery.
fn aggregated_entries(resource: &Value) -> Vec<Value> {
    let name = text(resource, "resource");
    let mut main = entry(name, text(resource, "singularResource"), resource, resource);
    for field in ["shortNames", "categories"] {
        if let Some(list) = resource.get(field).filter(|list| !list.is_null()) {
            main.insert(field.to_owned(), list.clone());
        }
    }
    let mut entries = vec![Value::Object(main)];
    for subresource in items(resource, "subresources") {
        let name = format!("{name}/{}", text(subresource, "subresource"));
        entries.push(Value::Object(entry(&name, "", subresource, resource)));
    }
    entries
}

fn entry(name: &str, singular: &str, source: &Value, parent: &Value) -> Map {
    let kind = source.get("responseKind").cloned().unwrap_or_default();
    let mut entry = Map::new();
    entry.insert("name".into(), name.into());
    entry.insert("singularName".into(), singular.into());
    entry.insert("namespaced".into(), (text(parent, "scope") == "Namespaced").into());
    for (from, to) in [("group", "group"), ("version", "version"), ("kind", "kind")] {
        let value = text(&kind, from);
        if !value.is_empty() || to == "kind" {
            entry.insert(to.into(), value.into());
        }
    }
    entry.insert("verbs".into(), source.get("verbs").cloned().unwrap_or_else(|| json!([])));
    entry
}

/// The groups of an old discovery document.
fn plain_groups(document: &Value) -> Vec<ApiGroup> {
    if document.get("kind").and_then(Value::as_str) == Some("APIVersions") {
        let versions: Vec<String> =
            items(document, "versions").filter_map(|version| version.as_str().map(str::to_owned)).collect();
        let preferred = versions.first().cloned().unwrap_or_default();
        return vec![ApiGroup { name: String::new(), versions, preferred }];
    }
    items(document, "groups").map(parse_group).collect()
}

fn add_group(client: &RestClient, data: &mut DiscoveryData, group: ApiGroup) {
    for version in &group.versions {
        let root = if group.name.is_empty() { "/api" } else { "/apis" };
        let mut request = RestRequest::get(format!("{root}/{}", group_version(&group.name, version)));
        request.default_timeout = TIMEOUT;
        match client.send_json(request) {
            Ok(list) => {
                let entries = items(&list, "resources").cloned();
                data.resources.extend(entries.map(|entry| parse_resource(&group.name, version, entry)));
            }
            Err(error) => data.failures.push((group_version(&group.name, version), error.to_string())),
        }
    }
    data.groups.push(group);
}
