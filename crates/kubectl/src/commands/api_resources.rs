//! `kubectl api-resources` and `kubectl api-versions`

use api::Value;
use serde_json::json;

use super::version::check_no_arguments;
use crate::{
    discovery::{ApiResource, group_version},
    errors::{CommandError, CommandResult},
    outln,
    output::write_out,
    printers::indent_json,
    session::Session,
    tab_writer::TabWriter,
};

/// Prints the resources of the server.
pub fn run_resources(session: &Session) -> CommandResult {
    check_no_arguments(session)?;
    let flags = &session.flags;
    let output = flags.string("output");
    let known = ["", "wide", "name", "json", "yaml", "kyaml"];
    if !known.contains(&output.as_str()) {
        crate::bail!(
            "unable to match a printer suitable for the output format {}, allowed formats are: json,kyaml,name,wide,yaml",
            api::json::go_quote(&output)
        );
    }
    let sort = flags.string("sort-by");
    if !["", "name", "kind"].contains(&sort.as_str()) {
        crate::bail!("--sort-by accepts only name or kind");
    }
    let data = if flags.bool("cached") { session.discovery()? } else { session.fresh_discovery()? };
    let verbs = flags.strings("verbs");
    let categories = flags.strings("categories");
    let group = flags.string("api-group");
    let mut resources: Vec<&ApiResource> = data
        .preferred_resources()
        .into_iter()
        .filter(|resource| !resource.verbs.is_empty())
        .filter(|resource| !flags.changed("api-group") || resource.group == group)
        .filter(|resource| !flags.changed("namespaced") || resource.namespaced == flags.bool("namespaced"))
        .filter(|resource| verbs.iter().all(|verb| resource.verbs.contains(verb)))
        .filter(|resource| categories.iter().all(|category| resource.categories.contains(category)))
        .collect();
    match sort.as_str() {
        "name" => resources.sort_by(|a, b| a.name.cmp(&b.name)),
        "kind" => resources.sort_by(|a, b| a.kind.cmp(&b.kind)),
        _ => resources.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name))),
    }
    match output.as_str() {
        "" | "wide" => print_table(session, &resources, output == "wide"),
        "name" => resources.iter().for_each(|resource| outln!("{}", full_name(resource))),
        format => print_list(format, &resources),
    }
    let failures: Vec<CommandError> = data
        .failures
        .iter()
        .map(|(name, cause)| {
            CommandError::new(format!("unable to retrieve the complete list of server APIs: {name}: {cause}"))
        })
        .collect();
    CommandError::join(failures)
}

fn full_name(resource: &ApiResource) -> String {
    if resource.group.is_empty() { resource.name.clone() } else { format!("{}.{}", resource.name, resource.group) }
}

fn print_table(session: &Session, resources: &[&ApiResource], wide: bool) {
    let mut writer = TabWriter::for_tables();
    if !session.flags.bool("no-headers") {
        let mut header = vec!["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"];
        if wide {
            header.extend(["VERBS", "CATEGORIES"]);
        }
        writer.push_row(&header);
    }
    for resource in resources {
        let mut row = vec![
            resource.name.clone(),
            resource.short_names.join(","),
            group_version(&resource.group, &resource.version),
            resource.namespaced.to_string(),
            resource.kind.clone(),
        ];
        if wide {
            row.push(resource.verbs.join(","));
            row.push(resource.categories.join(","));
        }
        writer.push_row(&row);
    }
    write_out(&writer.flush());
}

/// Prints an `APIResourceList`.
fn print_list(format: &str, resources: &[&ApiResource]) {
    let fields =
        ["name", "singularName", "namespaced", "group", "version", "kind", "verbs", "shortNames", "categories"];
    let entry = |resource: &&ApiResource| {
        let mut entry = resource.entry.clone();
        entry["group"] = resource.group.clone().into();
        entry["version"] = resource.version.clone().into();
        if resource.group.is_empty()
            && let Value::Object(map) = &mut entry
        {
            map.remove("group");
        }
        entry
    };
    let entries: Vec<Value> = resources.iter().map(entry).collect();
    if format != "json" {
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": entries});
        write_out(&api::yaml::write_document(&list));
        return;
    }
    let ordered = |entry: &Value| {
        let pairs: Vec<String> =
            fields.iter().filter_map(|name| entry.get(*name).map(|value| format!("\"{name}\":{value}"))).collect();
        format!("{{{}}}", pairs.join(","))
    };
    let items: Vec<String> = entries.iter().map(ordered).collect();
    let text = format!(
        "{{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"\",\"resources\":[{}]}}",
        items.join(",")
    );
    outln!("{}", indent_json(&text, "    "));
}

/// Prints the group-versions of the server.
pub fn run_versions(session: &Session) -> CommandResult {
    check_no_arguments(session)?;
    session.client()?;
    let data = session
        .fresh_discovery()
        .map_err(|error| error.with_prefix("couldn't get available api versions from server: "))?;
    let mut versions: Vec<String> = data
        .groups
        .iter()
        .flat_map(|group| group.versions.iter().map(|version| group_version(&group.name, version)))
        .collect();
    versions.sort();
    versions.iter().for_each(|version| outln!("{version}"));
    Ok(())
}
