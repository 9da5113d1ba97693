//! Validation of how schemas of custom resources say that lists and maps are merged.

use super::{custom_schema::LIST_KEYS, custom_schema::LIST_TYPE, custom_schema::MAP_TYPE, prelude::*};

fn must_be(at: &At, wanted: &str, extension: &str, e: &mut Errors) {
    let kind = at.get("type");
    let message = format!("must be {wanted} if {extension} is specified");
    if kind.is_empty() {
        kind.required(e, message);
    } else if kind.text() != wanted {
        kind.invalid_text(e, message);
    }
}

/// The faults of what a schema says about merging.
pub(super) fn check(at: &At, e: &mut Errors) {
    let (list, keys, map, items) = (at.get(LIST_TYPE), at.get(LIST_KEYS), at.get(MAP_TYPE), at.get("items"));
    if map.exists() {
        must_be(at, "object", MAP_TYPE, e);
        map.one_of(e, &["atomic", "granular"]);
    }
    if list.exists() {
        must_be(at, "array", LIST_TYPE, e);
        if list.text() == "set" {
            let inner = if items.get("type").text() == "array" { LIST_TYPE } else { MAP_TYPE };
            let wrong = match items.get("type").text() {
                "array" => items.get(inner).exists() && items.get(inner).text() != "atomic",
                "object" => items.get(inner).text() != "atomic",
                _ => false,
            };
            if wrong {
                let message = "must be atomic as item of a list with x-kubernetes-list-type=set";
                items.get(inner).invalid_as(e, items.get(LIST_TYPE).value.clone(), message);
            }
        }
        list.one_of(e, &["atomic", "set", "map"]);
    }
    let needed = "must be map if x-kubernetes-list-map-keys is non-empty";
    if !keys.is_empty() && !list.exists() {
        list.required(e, needed);
    } else if !keys.is_empty() && list.text() != "map" {
        list.invalid_text(e, needed);
    }
    if list.text() == "map" {
        map_keys(&keys, &items, e);
    }
    if ["set", "map"].contains(&list.text()) && items.get("nullable").is_true() {
        let message = format!("cannot be nullable when x-kubernetes-list-type is {}", list.text());
        items.get("nullable").forbidden(e, message);
    }
}

fn map_keys(keys: &At, items: &At, e: &mut Errors) {
    if keys.is_empty() {
        keys.required(e, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.exists() {
        return items.required(e, "must have a schema if x-kubernetes-list-type is map");
    }
    let kind = items.get("type");
    if kind.text() != "object" {
        return kind.invalid_text(e, "must be object if parent array's x-kubernetes-list-type is map");
    }
    let properties = items.get("properties");
    let mut seen = Vec::new();
    for key in keys.texts() {
        let property = properties.key(key);
        if !property.exists() {
            keys.invalid(e, "entries must all be names of item properties");
        } else if ["array", "object"].contains(&property.get("type").text()) {
            let message = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            property.get("type").invalid_as(e, kind.text(), message);
        }
        if seen.contains(&key) {
            keys.invalid(e, "must not contain duplicate entries");
        }
        seen.push(key);
    }
    for key in keys.texts().filter(|key| properties.key(key).exists()) {
        let property = properties.key(key);
        let required = items.get("required").texts().any(|field| field == key);
        let why = "this property is in x-kubernetes-list-map-keys, so it";
        if !required && !property.get("default").exists() {
            property.get("default").required(e, format!("{why} must have a default or be a required property"));
        }
        if property.get("nullable").is_true() {
            property.get("nullable").forbidden(e, format!("{why} cannot be nullable"));
        }
    }
}
