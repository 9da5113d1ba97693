//! Finding, reading and merging kubeconfig files.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use api::{Map, Value};

use super::{Kubeconfig, SECTIONS, entry_types::check_types, text_of};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    files::os_error,
};

/// The files that make up the configuration.
#[derive(Clone, Debug)]
pub struct LoadingRules {
    /// The file of `--kubeconfig`.
    pub explicit: Option<PathBuf>,
    /// The files of `KUBECONFIG`, or the one in the home directory.
    pub precedence: Vec<PathBuf>,
    /// Whether the files come from `KUBECONFIG`.
    pub from_environment: bool,
}

impl LoadingRules {
    /// The rules for a `--kubeconfig` flag and the environment.
    pub fn new(explicit: &str) -> Self {
        let variable = std::env::var("KUBECONFIG").unwrap_or_default();
        let mut precedence: Vec<PathBuf> = Vec::new();
        for path in variable.split(':').map(PathBuf::from) {
            if !variable.is_empty() && !precedence.contains(&path) {
                precedence.push(path);
            }
        }
        let from_environment = !variable.is_empty();
        if !from_environment {
            precedence.push(home_file());
        }
        let explicit = (!explicit.is_empty()).then(|| PathBuf::from(explicit));
        LoadingRules { explicit, precedence, from_environment }
    }

    /// The files, in order of precedence.
    pub fn files(&self) -> Vec<PathBuf> {
        self.explicit.as_ref().map_or_else(|| self.precedence.clone(), |explicit| vec![explicit.clone()])
    }

    /// Loads and merges the files; paths in them become absolute.
    pub fn load(&self, warn: bool) -> CommandResult<Kubeconfig> {
        let mut config = self.load_raw(warn)?;
        resolve_paths(&mut config);
        Ok(config)
    }

    /// Loads and merges the files; paths in them stay as they are.
    pub fn load_raw(&self, warn: bool) -> CommandResult<Kubeconfig> {
        if let Some(explicit) = &self.explicit
            && let Err(error) = std::fs::metadata(explicit)
            && error.kind() == ErrorKind::NotFound
        {
            return Err(CommandError::new(format!("stat {}: {}", explicit.display(), os_error(&error))));
        }
        let (mut merged, mut errors, mut missing, mut found) = (Kubeconfig::default(), Vec::new(), Vec::new(), false);
        for path in self.files().into_iter().filter(|path| !path.as_os_str().is_empty()) {
            match load_file(&path) {
                Ok(Some(config)) => {
                    found = true;
                    merge_config(&mut merged, config);
                }
                Ok(None) => missing.push(path.display().to_string()),
                Err(error) => {
                    errors
                        .push(CommandError::new(format!("error loading config file \"{}\": {error}", path.display())));
                }
            }
        }
        if warn && self.from_environment && self.explicit.is_none() && !missing.is_empty() && !found {
            errln!("Warning: Config not found: {}", missing.join(", "));
        }
        CommandError::join(errors).map(|()| merged)
    }

    /// The file to which new entries go.
    pub fn default_file(&self) -> PathBuf {
        if let Some(explicit) = &self.explicit {
            return explicit.clone();
        }
        match self.precedence.as_slice() {
            [one] => one.clone(),
            several => several.iter().find(|path| path.exists()).or(several.last()).cloned().unwrap_or_else(home_file),
        }
    }
}

fn home_file() -> PathBuf {
    Path::new(&std::env::var("HOME").unwrap_or_default()).join(".kube/config")
}

/// Reads one file; `None` if it does not exist.
pub fn load_file(path: &Path) -> CommandResult<Option<Kubeconfig>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(CommandError::new(format!("open {}: {}", path.display(), os_error(&error))));
        }
    };
    let mut config = parse_config(&bytes)?;
    for (section, _) in SECTIONS {
        let names: Vec<String> = config.section(section).keys().cloned().collect();
        for name in names {
            config.origins.insert((section, name), path.to_owned());
        }
    }
    Ok(Some(config))
}

fn parse_config(bytes: &[u8]) -> CommandResult<Kubeconfig> {
    let parsed = api::yaml::parse(bytes).map_err(|error| CommandError::new(error.to_string()));
    // An empty file is an empty configuration.
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Kubeconfig::default());
    }
    let value = parsed?.value;
    if value.is_object() {
        check_types(&value)?;
    }
    let text = |field: &str, default: &str| match value.get(field).and_then(Value::as_str) {
        None | Some("") => default.to_owned(),
        Some(text) => text.to_owned(),
    };
    let (version, kind) = (text("apiVersion", "v1"), text("kind", "Config"));
    if value.is_object() && (version != "v1" || kind != "Config") {
        return Err(crate::manifest::unregistered_kind(&kind, &version));
    }
    let root = match value {
        Value::Object(root) => root,
        Value::Null => return Ok(Kubeconfig::default()),
        other => return Err(crate::manifest::type_meta_error(&other)),
    };
    let mut config = Kubeconfig { current_context: text_of(&root, "current-context").to_owned(), ..Default::default() };
    for (section, field) in SECTIONS {
        for entry in root.get(section).and_then(Value::as_array).into_iter().flatten() {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let value = entry.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
            config.section_mut(section).entry(name).or_insert(value);
        }
    }
    config.preferences = root.get("preferences").and_then(Value::as_object).cloned().unwrap_or_default();
    for entry in root.get("extensions").and_then(Value::as_array).into_iter().flatten() {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        config.extensions.insert(name, entry.get("extension").cloned().unwrap_or_default());
    }
    Ok(config)
}

/// Adds what the first configuration lacks.
fn merge_config(into: &mut Kubeconfig, other: Kubeconfig) {
    for (section, _) in SECTIONS {
        for (name, entry) in other.section(section).clone() {
            if into.section(section).contains_key(&name) {
                continue;
            }
            if let Some(origin) = other.origins.get(&(section, name.clone())) {
                into.origins.insert((section, name.clone()), origin.clone());
            }
            into.section_mut(section).insert(name, entry);
        }
    }
    for (name, value) in other.extensions {
        into.extensions.entry(name).or_insert(value);
    }
    if into.preferences.is_empty() {
        into.preferences = other.preferences;
    }
    if into.current_context.is_empty() {
        into.current_context = other.current_context;
    }
}

/// Makes relative paths absolute, from the directory of their file.
fn resolve_paths(config: &mut Kubeconfig) {
    let origins = config.origins.clone();
    let fields: [(&str, &[&str]); 2] =
        [("clusters", &["certificate-authority"]), ("users", &["client-certificate", "client-key", "tokenFile"])];
    for (section, names) in fields {
        for (name, entry) in config.section_mut(section).iter_mut() {
            let Some(base) = origins.get(&(section, name.clone())).and_then(|path| absolute_directory(path)) else {
                continue;
            };
            for field in names {
                resolve_field(entry, field, &base);
            }
            if let Some(exec) = entry.get_mut("exec").and_then(Value::as_object_mut)
                && text_of(exec, "command").contains('/')
            {
                resolve_field(exec, "command", &base);
            }
        }
    }
}

fn absolute_directory(path: &Path) -> Option<PathBuf> {
    let path = if path.is_absolute() { path.to_owned() } else { std::env::current_dir().ok()?.join(path) };
    path.parent().map(Path::to_owned)
}

fn resolve_field(entry: &mut Map, field: &str, base: &Path) {
    let path = text_of(entry, field);
    if !path.is_empty() && !Path::new(path).is_absolute() {
        let absolute = crate::files::clean_path(&base.join(path));
        entry.insert(field.to_owned(), absolute.display().to_string().into());
    }
}
