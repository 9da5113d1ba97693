//! Descriptions of operations and parameters, generated from verb and kind.

use super::route::{OpenApiRoute, RouteParameter};

/// The table of parameter descriptions, one per line.
const PARAMETER_TABLE: &str = include_str!("../../schema/parameters.txt");

/// The description of a parameter.
pub(super) fn parameter_description(parameter: &RouteParameter) -> Option<&'static str> {
    PARAMETER_TABLE.lines().find_map(|line| line.strip_prefix(parameter.name)?.strip_prefix(": "))
}

/// The description of an operation.
pub(super) fn operation_description(route: &OpenApiRoute) -> String {
    let kind = route.kind.as_ref().map_or("", |kind| kind.kind.as_str());
    let part = route.path.split_once("/{name}/").map_or("", |(_, part)| part.split('/').next().unwrap_or_default());
    let what = if part.is_empty() { kind.to_owned() } else { format!("{part} ({kind}) of an object") };
    match (route.action, part) {
        (Some("post"), "") => format!("Creates an object of kind {kind}."),
        (Some("post"), _) => format!("Creates the {what}."),
        (Some("get"), _) => format!("Reads the {what}."),
        (Some("put"), _) => format!("Replaces the {what}."),
        (Some("patch"), _) => format!("Changes parts of the {what}."),
        (Some("delete"), _) => format!("Deletes the {what}."),
        (Some("deletecollection"), _) => format!("Deletes the objects of kind {kind} that are selected."),
        (Some("list"), _) => format!("Lists objects of kind {kind}, or watches them."),
        (Some("watchlist"), _) => {
            format!("Watches objects of kind {kind}. Outdated: a list with the parameter `watch` does the same.")
        }
        (Some("watch"), _) => {
            format!("Watches the {kind}. Outdated: a list with `watch` and a selector of fields does the same.")
        }
        (Some("connect"), _) => {
            format!("Connects {} requests to the {part} of an object.", route.method.to_uppercase())
        }
        _ => format!("Tells what there is at {}.", route.path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{discovery::ALL_ENABLED, openapi::documents};

    #[test]
    fn every_operation_and_parameter_is_described() {
        assert!(PARAMETER_TABLE.lines().skip(1).is_sorted());
        for route in documents::list_documents(ALL_ENABLED).iter().flat_map(|document| &document.routes) {
            assert!(operation_description(route).ends_with('.'));
            for given in &route.parameters {
                assert!(parameter_description(given).is_some(), "{}: {}", route.path, given.name);
            }
        }
    }
}
