//! The discovery cache on disk, in upstream's layout: `servergroups.json`, and `serverresources.json` per group-version.

use std::{
    fs,
    io::Write,
    path::Path,
    time::{Duration, SystemTime},
};

use api::Value;
use serde_json::json;

use super::{ApiGroup, ApiResource, DiscoveryData, group_version};

const TTL: Duration = Duration::from_secs(6 * 60 * 60);

/// The directory name of a server.
pub fn host_directory(host: &str) -> String {
    let bare = host.replacen("https://", "", 1).replacen("http://", "", 1);
    bare.chars().map(|c| if c.is_ascii_alphanumeric() || "_/.()".contains(c) { c } else { '_' }).collect()
}

fn read_valid(path: &Path) -> Option<Value> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    if age > TTL {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Reads the cache; `None` unless it is whole and valid.
pub fn read_cache(directory: &str) -> Option<DiscoveryData> {
    let directory = Path::new(directory);
    let groups = read_valid(&directory.join("servergroups.json"))?;
    let mut data = DiscoveryData::default();
    for group in groups.get("groups")?.as_array()? {
        let group = parse_group(group);
        for version in &group.versions {
            let name = group_version(&group.name, version);
            let list = read_valid(&directory.join(&name).join("serverresources.json"))?;
            let entries = list.get("resources").and_then(Value::as_array).cloned().unwrap_or_default();
            data.resources.extend(entries.into_iter().map(|entry| parse_resource(&group.name, version, entry)));
        }
        data.groups.push(group);
    }
    Some(data)
}

/// Writes the cache; a directory that cannot be written is left alone.
pub fn write_cache(directory: &str, data: &DiscoveryData) {
    let directory = Path::new(directory);
    let groups: Vec<Value> = data.groups.iter().map(format_group).collect();
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
    write_file(&directory.join("servergroups.json"), &list);
    for group in &data.groups {
        for version in &group.versions {
            let name = group_version(&group.name, version);
            let entries: Vec<&Value> = data.resources_of(&group.name, version).map(|entry| &entry.entry).collect();
            if entries.is_empty() {
                continue;
            }
            let list =
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries});
            write_file(&directory.join(&name).join("serverresources.json"), &list);
        }
    }
}

/// Writes a file in one step; the cache is an optimisation, so failures are ignored.
fn write_file(path: &Path, document: &Value) {
    let Some(directory) = path.parent() else { return };
    let written = fs::create_dir_all(directory)
        .and_then(|()| tempfile::NamedTempFile::new_in(directory))
        .and_then(|mut file| file.write_all(format!("{document}\n").as_bytes()).map(|()| file));
    if let Ok(file) = written {
        let _ = file.persist(path);
    }
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let items = value.get(field).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Reads an `APIGroup`.
pub fn parse_group(group: &Value) -> ApiGroup {
    let versions = group.get("versions").and_then(Value::as_array).into_iter().flatten();
    let versions: Vec<String> = versions.map(|version| text(version, "version")).collect();
    let preferred = group.get("preferredVersion").map(|version| text(version, "version")).unwrap_or_default();
    ApiGroup { name: text(group, "name"), versions, preferred }
}

fn format_group(group: &ApiGroup) -> Value {
    let version = |version: &String| json!({"groupVersion": group_version(&group.name, version), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": version(&group.preferred)})
}

/// Reads an `APIResource`; one that is not an object is empty.
pub fn parse_resource(group: &str, version: &str, entry: Value) -> ApiResource {
    let entry = if entry.is_object() { entry } else { json!({}) };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        name: text(&entry, "name"),
        singular: text(&entry, "singularName"),
        kind: text(&entry, "kind"),
        namespaced: entry.get("namespaced") == Some(&Value::Bool(true)),
        verbs: texts(&entry, "verbs"),
        short_names: texts(&entry, "shortNames"),
        categories: texts(&entry, "categories"),
        entry,
    }
}
