//! The cluster's entry in a kubeconfig file: merged into whatever is there, and taken out again by `down --purge`.
//!
//! The file belongs to its user: every other entry and every unknown field is kept, the file is always whole, and one
//! that cannot be understood is refused rather than replaced.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{atomic, pki::CertificatePair, user_error::user_error};

/// A kubeconfig file.
#[derive(Debug)]
pub struct Kubeconfig {
    path: PathBuf,
    root: Map<String, Value>,
    /// The text that was read; empty for a new file.
    text: String,
}

impl Kubeconfig {
    /// Reads the file; an absent or empty one is an empty kubeconfig.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        // Users keep their configuration behind symbolic links: the file they point to is the one to replace.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let text =
            atomic::read_file(&path).with_context(|| format!("cannot read {}", path.display()))?.unwrap_or_default();
        let unusable = |why: String| {
            user_error(
                format!("{} is not a kubeconfig: {why}", path.display()),
                "Mend or move that file, or write elsewhere with --kubeconfig FILE.",
            )
        };
        let root = match formats::yaml::parse(text.as_bytes()).map_err(|error| unusable(error.to_string()))?.value {
            Value::Null => Map::new(),
            Value::Object(root) => root,
            _ => return Err(unusable("it is not a mapping".into())),
        };
        for list in ["clusters", "users", "contexts"] {
            if !matches!(root.get(list), None | Some(Value::Null | Value::Array(_))) {
                return Err(unusable(format!("{list} is not a list")));
            }
        }
        Ok(Self { path, root, text })
    }

    /// Refuses a place where the file cannot be: its directory may be missing, but not that one's.
    pub fn check_place(&self) -> anyhow::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        if directory.is_dir() || directory.parent().is_some_and(Path::is_dir) && !directory.exists() {
            return Ok(());
        }
        Err(user_error(
            format!("the kubeconfig {} cannot be written: its directory does not exist", self.path.display()),
            "Make that directory, or write elsewhere with --kubeconfig FILE.",
        ))
    }

    /// The name of the current context.
    pub fn current_context(&self) -> Option<&str> {
        self.root.get("current-context")?.as_str().filter(|name| !name.is_empty())
    }

    /// Whether the file has a cluster of that name which is not the one of this CA.
    pub fn names_another(&self, name: &str, ca: &str) -> bool {
        let clusters = self.root.get("clusters").and_then(Value::as_array);
        let found = clusters.and_then(|all| all.iter().find(|entry| is_named(entry, name)));
        found
            .is_some_and(|entry| entry["cluster"]["certificate-authority-data"].as_str() != Some(&*STANDARD.encode(ca)))
    }

    /// Sets cluster, user and context `name` and makes it the current one.
    pub fn set(&mut self, name: &str, server: &str, ca: &str, user: &CertificatePair) {
        let cluster = [("certificate-authority-data", encode_pem(ca)), ("server", server.into())];
        *self.entry("clusters", name, "cluster") = mapping(cluster);
        self.set_user(name, user);
        // The context also holds the namespace that the user chose: only what is ours is set.
        let context = self.entry("contexts", name, "context");
        if !context.is_object() {
            *context = Value::Object(Map::new());
        }
        context["cluster"] = name.into();
        context["user"] = name.into();
        self.root.insert("current-context".into(), name.into());
        self.root.entry("apiVersion").or_insert("v1".into());
        self.root.entry("kind").or_insert("Config".into());
    }

    /// Sets the certificate of user `name`.
    pub fn set_user(&mut self, name: &str, user: &CertificatePair) {
        let pair =
            [("client-certificate-data", encode_pem(&user.certificate)), ("client-key-data", encode_pem(&user.key))];
        *self.entry("users", name, "user") = mapping(pair);
    }

    /// Removes cluster, user and context `name`; if it was the current one, `previous` is again, if it still exists.
    pub fn remove(&mut self, name: &str, previous: Option<&str>) {
        for list in ["clusters", "users", "contexts"] {
            if let Some(entries) = self.root.get_mut(list).and_then(Value::as_array_mut) {
                entries.retain(|entry| !is_named(entry, name));
            }
        }
        if self.current_context() == Some(name) {
            let contexts = self.root.get("contexts").and_then(Value::as_array);
            let previous =
                previous.filter(|previous| contexts.is_some_and(|all| all.iter().any(|it| is_named(it, previous))));
            self.root.insert("current-context".into(), previous.unwrap_or_default().into());
        }
    }

    /// Writes the file if that changes it. A new file, and a new directory for it, belong to `owner`.
    pub fn write(&self, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
        let old = formats::yaml::parse(self.text.as_bytes());
        if !self.text.is_empty() && old.is_ok_and(|old| old.value.as_object() == Some(&self.root)) {
            return Ok(());
        }
        let owner = match fs::metadata(&self.path) {
            Ok(existing) => Some((existing.uid(), existing.gid())),
            Err(_) => self.make_directory(owner)?,
        };
        let text = formats::yaml::write_document(&Value::Object(self.root.clone()));
        let access = atomic::FileAccess { owner, ..atomic::PRIVATE };
        let written = atomic::write_file(&self.path, text.as_bytes(), access);
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn make_directory(&self, owner: Option<(u32, u32)>) -> anyhow::Result<Option<(u32, u32)>> {
        let Some(directory) = self.path.parent().filter(|directory| !directory.exists()) else { return Ok(owner) };
        let context = || format!("cannot make {}", directory.display());
        fs::create_dir(directory).with_context(context)?;
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(directory, Some(user), Some(group)).with_context(context)?;
        }
        Ok(owner)
    }

    /// The inner value of the entry `name` of a list, made if absent.
    fn entry(&mut self, list: &str, name: &str, inner: &str) -> &mut Value {
        let entries = self.root.entry(list).or_insert(Value::Null);
        if !entries.is_array() {
            *entries = Value::Array(Vec::new());
        }
        let Value::Array(entries) = entries else { unreachable!("made a list just now") };
        let at = entries.iter().position(|entry| is_named(entry, name)).unwrap_or_else(|| {
            entries.push(mapping([(inner, Value::Null), ("name", name.into())]));
            entries.len() - 1
        });
        &mut entries[at][inner]
    }
}

fn is_named(entry: &Value, name: &str) -> bool {
    entry.get("name").and_then(Value::as_str) == Some(name)
}

fn mapping<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn encode_pem(pem: &str) -> Value {
    STANDARD.encode(pem).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn admin() -> CertificatePair {
        CertificatePair { certificate: "admin crt".into(), key: "admin key".into() }
    }

    const FOREIGN: &str = "\
apiVersion: v1
kind: Config
clusters:
- name: work
  cluster: {server: https://work.example, extensions: [{name: x, extension: {size: 1}}]}
users: null
contexts:
- name: work
  context: {cluster: work, user: me, namespace: team}
current-context: work
preferences: {colors: true}
unknown: {kept: [1, 2]}
";

    #[test]
    fn merging_keeps_what_is_foreign_and_removing_restores_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, FOREIGN).unwrap();
        let mut merged = Kubeconfig::read(&path).unwrap();
        merged.set("ferry", "https://127.0.0.1:6443", "ca", &admin());
        merged.write(None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let mut again = Kubeconfig::read(&path).unwrap();
        assert_eq!(again.current_context(), Some("ferry"));
        assert_eq!(again.root["unknown"]["kept"][1], Value::from(2));
        assert_eq!(again.root["clusters"][0]["cluster"]["extensions"][0]["extension"]["size"], Value::from(1));
        assert_eq!(again.root["clusters"][1]["cluster"]["server"], Value::from("https://127.0.0.1:6443"));
        assert_eq!(again.root["users"][0]["user"]["client-key-data"], Value::from(STANDARD.encode("admin key")));

        again.remove("ferry", Some("work"));
        let mut original = formats::yaml::parse(FOREIGN.as_bytes()).unwrap().value;
        original["users"] = Value::Array(Vec::new());
        assert_eq!(Value::Object(again.root), original);
    }

    #[test]
    fn the_users_namespace_and_unchanged_bytes_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/config");
        Kubeconfig::read(&path).unwrap().check_place().unwrap();
        assert!(Kubeconfig::read(&directory.path().join("a/b/config")).unwrap().check_place().is_err());
        let mut first = Kubeconfig::read(&path).unwrap();
        first.set("ferry", "https://127.0.0.1:6443", "ca", &admin());
        first.root["contexts"][0]["context"]["namespace"] = "mine".into();
        first.write(None).unwrap();
        let text = format!("# a comment\n{}", fs::read_to_string(&path).unwrap());
        fs::write(&path, &text).unwrap();
        let mut second = Kubeconfig::read(&path).unwrap();
        second.set("ferry", "https://127.0.0.1:6443", "ca", &admin());
        second.write(None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn what_is_not_a_kubeconfig_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for wrong in ["{", "- a\n", "clusters: 5\n"] {
            fs::write(&path, wrong).unwrap();
            let refused = Kubeconfig::read(&path).unwrap_err().to_string();
            assert!(refused.contains("is not a kubeconfig") && refused.contains("--kubeconfig"), "{refused}");
        }
    }

    #[test]
    fn a_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::write(&real, FOREIGN).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut config = Kubeconfig::read(&link).unwrap();
        config.set("ferry", "https://127.0.0.1:6443", "ca", &admin());
        config.write(None).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&real).unwrap().contains("current-context: ferry"));
    }
}
