//! What operations and parameters are for, made from the verb and the kind: for whoever reads a document or a client that was
//! generated from it.

use super::route::{Parameter, Route};

/// Parameters by name, in the order of the alphabet.
const PARAMETERS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "Send bookmarks now and then, from which a watch can be resumed."),
    ("command", "The command to run, a part of it for each time that this is given; no shell is used."),
    ("container", "The container; may be left out where the pod has one or names a default."),
    ("continue", "Where to go on: the text that the last part of a list came with."),
    ("dryRun", "Do everything but store: `All`, or nothing."),
    ("fieldManager", "Who owns what is changed: a short name, at most 128 characters that can be printed."),
    ("fieldSelector", "Only objects whose fields are as said, for example `status.phase=Running`."),
    ("fieldValidation", "What to do about unknown and duplicate fields: `Ignore`, `Warn` or `Strict`."),
    ("follow", "Go on with the log as it is written."),
    ("force", "Take fields from other managers, where an apply is in conflict with them."),
    ("gracePeriodSeconds", "How long the object may take to end; 0 deletes it at once."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "Delete an object that cannot be read from the store, without its finalizers. This can break the cluster.",
    ),
    ("insecureSkipTLSVerifyBackend", "Do not verify who serves the log."),
    ("labelSelector", "Only objects with such labels, for example `app=web,tier in (a,b)`."),
    ("limit", "At most so many objects; the list then says where to go on."),
    ("limitBytes", "At most so many bytes of the log."),
    ("logpath", "The log file."),
    ("name", "The name of the object."),
    ("namespace", "The namespace of the object."),
    ("orphanDependents", "Keep what belongs to the object. Outdated: propagationPolicy says it better."),
    ("path", "The path that the request is passed on with."),
    ("ports", "The ports to forward."),
    ("pretty", "Write the answer with indentation: `true`."),
    ("previous", "The log of the container before its last restart."),
    ("propagationPolicy", "What becomes of what belongs to the object: `Orphan`, `Background` or `Foreground`."),
    ("resourceVersion", "How fresh the answer must be, or where a watch begins."),
    ("resourceVersionMatch", "How resourceVersion is meant for a list: `Exact` or `NotOlderThan`."),
    ("sendInitialEvents", "Begin a watch with the objects there are, and a bookmark after the last of them."),
    ("shardSelector", "Only the objects of one shard."),
    ("sinceSeconds", "Only what was logged in so many last seconds."),
    ("stderr", "Pass on the standard error of the container."),
    ("stdin", "Pass on the standard input to the container."),
    ("stdout", "Pass on the standard output of the container."),
    ("stream", "Which stream of the log: `All`, `Stdout` or `Stderr`."),
    ("tailLines", "Only so many last lines of the log."),
    ("timeoutSeconds", "How long the request may take, whatever happens."),
    ("timestamps", "Put the time before each line."),
    ("tty", "Use a terminal."),
    ("watch", "Go on with what is created, changed and deleted, instead of a list."),
];

/// What a parameter is for.
pub(super) fn parameter(parameter: &Parameter) -> Option<&'static str> {
    let at = PARAMETERS.binary_search_by_key(&parameter.name, |(name, _)| *name).ok()?;
    Some(PARAMETERS[at].1)
}

/// What an operation does.
pub(super) fn operation(route: &Route) -> String {
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
    use crate::openapi::{ALL, documents};

    #[test]
    fn every_operation_and_parameter_is_described() {
        assert!(PARAMETERS.is_sorted_by_key(|(name, _)| *name));
        for route in documents::list(ALL).iter().flat_map(|document| &document.routes) {
            assert!(operation(route).ends_with('.'));
            for given in &route.parameters {
                assert!(parameter(given).is_some(), "{}: {}", route.path, given.name);
            }
        }
    }
}
