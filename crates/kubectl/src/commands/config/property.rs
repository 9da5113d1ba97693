//! `kubectl config set` and `unset`: properties by dotted name.

use api::{Map, Value, json::go_quote};

use super::{help_error, load};
use crate::{
    errors::CommandResult,
    kubeconfig::{Kubeconfig, corrupt_base64, modify_config},
    outln,
    session::Session,
};

const CLUSTER_FIELDS: [&str; 7] = [
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
];
const USER_FIELDS: [&str; 12] = [
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "act-as",
    "act-as-uid",
    "username",
    "password",
    "auth-provider",
    "exec",
];
const CONTEXT_FIELDS: [&str; 3] = ["cluster", "user", "namespace"];

/// A property: the section, the entry's name, and the field.
struct PropertyPath {
    section: &'static str,
    name: String,
    field: String,
}

fn parse_path(config: &Kubeconfig, text: &str) -> CommandResult<Option<PropertyPath>> {
    if text == "current-context" {
        return Ok(None);
    }
    if ["kind", "apiVersion"].contains(&text) {
        // Can be set, but files are written with those of their format.
        return Ok(Some(PropertyPath { section: "", name: String::new(), field: text.to_owned() }));
    }
    if text == "preferences.colors" {
        return Ok(Some(PropertyPath { section: "preferences", name: String::new(), field: "colors".to_owned() }));
    }
    let (first, rest) = text.split_once('.').unwrap_or((text, ""));
    let sections: [(&'static str, &[&str]); 3] =
        [("clusters", &CLUSTER_FIELDS), ("users", &USER_FIELDS), ("contexts", &CONTEXT_FIELDS)];
    let Some((section, fields)) = sections.iter().find(|(section, _)| *section == first) else {
        crate::bail!("unable to parse {text} after [] at api.Config");
    };
    // Names may have dots: the field is what stands after the last known one.
    let known = config
        .section(section)
        .keys()
        .filter(|name| rest == name.as_str() || rest.starts_with(&format!("{name}.")))
        .max_by_key(|name| name.len());
    let (name, field) = match known {
        Some(name) => (name.clone(), rest[name.len()..].trim_start_matches('.').to_owned()),
        None => match rest.rsplit_once('.') {
            Some((name, field)) if fields.contains(&field) => (name.to_owned(), field.to_owned()),
            _ => (rest.to_owned(), String::new()),
        },
    };
    if field.contains('.') && fields.contains(&field.split('.').next().unwrap_or_default()) {
        crate::bail!("unable to parse one or more field values of {text}");
    }
    if !field.is_empty() && !fields.contains(&field.split('.').next().unwrap_or_default()) {
        let what = match *section {
            "clusters" => "api.Cluster",
            "users" => "api.AuthInfo",
            _ => "api.Context",
        };
        crate::bail!("unable to parse {field} after [{section} {name}] at {what}");
    }
    // The names of the fields in memory are not all those of the file.
    let field = field.strip_prefix("act-").map_or(field.clone(), str::to_owned);
    Ok(Some(PropertyPath { section, name, field }))
}

/// `config set`
pub fn run_set(session: &Session) -> CommandResult {
    let [path, value] = session.arguments() else {
        return Err(help_error(session, &format!("Unexpected args: [{}]", session.arguments().join(" "))));
    };
    if value.is_empty() {
        crate::bail!("you cannot use set to unset a property");
    }
    if path.is_empty() {
        crate::bail!("you must specify a property");
    }
    let (rules, config) = load(session)?;
    let mut changed = config.clone();
    match parse_path(&config, path)? {
        None => changed.current_context.clone_from(value),
        Some(property) if property.section.is_empty() => {}
        Some(property) if property.section == "preferences" => {
            let Some(new) = parse_bool(value) else {
                crate::bail!("strconv.ParseBool: parsing {}: invalid syntax", go_quote(value));
            };
            changed.preferences.insert(property.field, new.into());
        }
        Some(property) => {
            if property.field.is_empty() {
                crate::bail!("unable to set a struct to a value");
            }
            let entry = changed.section_mut(property.section).entry(property.name).or_insert_with(Map::new);
            let boolean = ["insecure-skip-tls-verify", "disable-compression"].contains(&property.field.as_str());
            let new: Value = match value.as_str() {
                text if boolean && parse_bool(text).is_some() => parse_bool(text).into(),
                _ if boolean => crate::bail!("strconv.ParseBool: parsing {}: invalid syntax", go_quote(value)),
                text if property.field.ends_with("-data") && !session.flags.bool("set-raw-bytes") => {
                    if let Some(at) = corrupt_base64(text) {
                        crate::bail!("error decoding input value: illegal base64 data at input byte {at}");
                    }
                    text.replace(['\r', '\n'], "").into()
                }
                text if property.field.ends_with("-data") => {
                    use base64::Engine;
                    base64::engine::general_purpose::STANDARD.encode(text).into()
                }
                text => text.into(),
            };
            let mut object = Value::Object(std::mem::take(entry));
            crate::object::set_path(&mut object, &property.field, new);
            if let Value::Object(map) = object {
                *entry = map;
            }
        }
    }
    modify_config(&rules, &config, &changed)?;
    outln!("Property {} set.", go_quote(path));
    Ok(())
}

/// `config unset`
pub fn run_unset(session: &Session) -> CommandResult {
    let [path] = session.arguments() else {
        return Err(help_error(session, &format!("Unexpected args: [{}]", session.arguments().join(" "))));
    };
    let (rules, config) = load(session)?;
    let mut changed = config.clone();
    match parse_path(&config, path)? {
        None => changed.current_context.clear(),
        Some(property) if property.section.is_empty() => {}
        Some(property) if property.section == "preferences" => drop(changed.preferences.remove(&property.field)),
        Some(property) if property.name.is_empty() => changed.section_mut(property.section).clear(),
        Some(property) => {
            let entries = changed.section_mut(property.section);
            if property.field.is_empty() {
                entries.remove(&property.name);
            } else {
                let Some(entry) = entries.get_mut(&property.name) else {
                    crate::bail!("current map key `{}` is invalid", property.name);
                };
                let mut object = Value::Object(std::mem::take(entry));
                crate::object::remove_path(&mut object, &property.field);
                if let Value::Object(map) = object {
                    *entry = map;
                }
            }
        }
    }
    modify_config(&rules, &config, &changed)?;
    outln!("Property {} unset.", go_quote(path));
    Ok(())
}

/// Parses a boolean as Go does.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
