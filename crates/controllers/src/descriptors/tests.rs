//! The table against the API server's bootstrap policy.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use super::*;

/// Finds `bootstrap_policy.txt` in the sources of the workspace's crates.
fn find_bootstrap_policy(directory: &Path) -> Option<PathBuf> {
    let entries: Vec<_> = fs::read_dir(directory).ok()?.flatten().collect();
    let file = entries.iter().find(|entry| entry.file_name() == "bootstrap_policy.txt").map(|entry| entry.path());
    file.or_else(|| {
        let directories = entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.into_iter().find_map(|entry| find_bootstrap_policy(&entry.path()))
    })
}

/// Parses the sections `controller NAME` followed by indented rules.
fn parse_controller_rules(policy: &str) -> HashMap<&str, Vec<&str>> {
    let mut rules: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut current = None;
    for line in policy.lines() {
        match (line.strip_prefix("  "), line.strip_prefix("controller ")) {
            (Some(rule), _) => current.into_iter().for_each(|name| rules.entry(name).or_default().push(rule)),
            (None, name) => current = name,
        }
    }
    rules
}

#[test]
fn rules_match_the_bootstrap_policy() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = find_bootstrap_policy(&crates).expect("the authorization crate contains bootstrap_policy.txt");
    let policy = fs::read_to_string(file).unwrap();
    let granted = parse_controller_rules(&policy);
    for controller in CONTROLLERS {
        let rules = granted.get(controller.service_account).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(controller.rules, rules, "{}", controller.name);
    }
}

#[test]
fn controllers_have_unique_names() {
    for (index, controller) in CONTROLLERS.iter().enumerate() {
        for other in &CONTROLLERS[index + 1..] {
            assert_ne!(controller.name, other.name);
        }
    }
}
