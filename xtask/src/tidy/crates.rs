//! Which crate may use which, and that the map for newcomers names them all.
//!
//! Only what is shipped counts: the tests of a crate may use any other.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::{TidyProblem, vague};

/// Each crate and the crates that it may use.
const MAY_USE: [(&str, &[&str]); 31] = [
    ("formats", &[]),
    ("api", &["formats"]),
    ("cel", &["formats"]),
    ("expressions", &["api", "cel"]),
    ("store", &["formats"]),
    ("sys", &[]),
    ("transport", &[]),
    ("component-server", &["transport", "ttl-cache"]),
    ("apiserver-core", &["api", "store", "transport"]),
    ("authn", &["api", "apiserver-core", "expressions", "store", "ttl-cache"]),
    ("authz", &["api", "apiserver-core", "expressions", "store", "ttl-cache"]),
    ("audit", &["api", "apiserver-core"]),
    ("flowcontrol", &["api", "apiserver-core", "store"]),
    ("streaming", &["api", "apiserver-core", "transport"]),
    ("apiextensions", &["api", "apiserver-core", "cel", "formats", "store"]),
    ("admission", &["api", "apiserver-core", "authz", "cel", "expressions", "store", "ttl-cache"]),
    ("registry", &["admission", "api", "apiextensions", "apiserver-core", "authn", "authz", "expressions", "store"]),
    ("aggregator", &["api", "apiextensions", "apiserver-core", "store", "streaming"]),
    (
        "apiserver",
        &[
            "admission",
            "aggregator",
            "api",
            "apiextensions",
            "apiserver-core",
            "audit",
            "authn",
            "authz",
            "flowcontrol",
            "panics",
            "registry",
            "store",
            "streaming",
        ],
    ),
    ("panics", &[]),
    ("ttl-cache", &[]),
    ("client", &["api", "panics"]),
    ("controllers", &["api", "authn", "client", "expressions"]),
    ("scheduler", &["api", "cel", "client"]),
    ("runtime", &["cni", "sys", "transport"]),
    ("cni", &["sys"]),
    ("network", &["api", "client", "sys"]),
    ("addons", &["client", "component-server", "formats", "sys", "transport"]),
    ("kubelet", &["api", "client", "component-server", "formats", "runtime", "cni", "sys", "transport"]),
    ("kubectl", &["api", "formats", "transport"]),
    (
        "ferry",
        &[
            "api",
            "cel",
            "formats",
            "store",
            "sys",
            "apiserver",
            "client",
            "component-server",
            "controllers",
            "scheduler",
            "runtime",
            "cni",
            "network",
            "addons",
            "kubelet",
            "kubectl",
        ],
    ),
];
const MAP: &str = "ARCHITECTURE.md";

pub fn check(repository: &Path) -> Result<Vec<TidyProblem>> {
    let map = fs::read_to_string(repository.join(MAP)).ok();
    let mut problems = Vec::new();
    if map.is_none() {
        problems.push(TidyProblem::new(Path::new(MAP), 0, "it is missing; it says what each crate is for"));
    }
    for name in folders(&repository.join("crates"))? {
        let manifest = Path::new("crates").join(&name).join("Cargo.toml");
        let text = fs::read_to_string(repository.join(&manifest)).with_context(|| manifest.display().to_string())?;
        problems.extend(check_manifest(&manifest, &name, &text));
        if map.as_ref().is_some_and(|map| !names(map, &name)) {
            problems.push(TidyProblem::new(Path::new(MAP), 0, format!("it does not mention the crate `{name}`")));
        }
    }
    Ok(problems)
}

fn folders(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn names(map: &str, name: &str) -> bool {
    map.contains(&format!("`{name}`")) || map.contains(&format!("crates/{name}"))
}

fn check_manifest(manifest: &Path, name: &str, text: &str) -> Vec<TidyProblem> {
    if super::VAGUE_NAMES.contains(&name) {
        return vec![TidyProblem::new(manifest, 0, vague(name))];
    }
    let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
        return vec![TidyProblem::new(
            manifest,
            0,
            format!("the table of xtask's tidy does not know the crate `{name}`"),
        )];
    };
    let used = uses(text).into_iter().filter(|(_, used)| !allowed.contains(&used.as_str()));
    used.map(|(line, used)| TidyProblem::new(manifest, line, format!("`{name}` must not use `{used}`"))).collect()
}

/// The line and the name of each of our own crates that a manifest depends on.
fn uses(manifest: &str) -> Vec<(usize, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for (number, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            let (parent, key) = section.rsplit_once('.').unwrap_or((&section, ""));
            found.extend(own(key).filter(|_| is_shipped(parent)).map(|own| (number + 1, own)));
        } else if is_shipped(&section) {
            let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
            let renamed = line.split("package = \"").nth(1).and_then(|rest| rest.split('"').next());
            found.extend(own(renamed.unwrap_or(key)).map(|own| (number + 1, own)));
        }
    }
    found
}

fn is_shipped(section: &str) -> bool {
    let kind = section.rsplit('.').next().unwrap_or_default();
    kind == "dependencies" || kind == "build-dependencies"
}

fn own(package: &str) -> Option<String> {
    let name = package.trim_matches('"').strip_prefix("ferry-").unwrap_or(package.trim_matches('"'));
    MAY_USE.iter().any(|(known, _)| *known == name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_directions_are_found_however_they_are_written() {
        let expect = |name: &str, manifest: &str, lines: &[usize]| {
            let problems = check_manifest(Path::new("Cargo.toml"), name, manifest);
            assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), lines, "{manifest}");
        };
        expect("client", "[dependencies]\napi.workspace = true\ntokio = \"1\"\n", &[]);
        expect("client", "[dependencies]\nstore.workspace = true\n", &[2]);
        expect("client", "[dependencies]\nferry-store = { path = \"../store\" }\n", &[2]);
        expect("client", "[dependencies]\nx = { package = \"ferry-store\", path = \"../store\" }\n", &[2]);
        expect("client", "[dependencies.store]\nworkspace = true\n", &[1]);
        expect("client", "[target.'cfg(unix)'.dependencies]\nstore.workspace = true\n", &[2]);
        expect("client", "[dev-dependencies]\nserver.workspace = true\n", &[]);
        expect("unknown", "", &[0]);
        expect("utils", "", &[0]);
    }
}
