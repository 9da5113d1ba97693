//! The kustomization file: finding it, its fields, and those that are deprecated or refused.

use std::path::{Path, PathBuf};

use api::{Map, Value};

use crate::{
    errln,
    errors::{CommandError, CommandResult},
};

const FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

const FIELDS: [&str; 34] = [
    "apiVersion",
    "kind",
    "metadata",
    "openapi",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "commonLabels",
    "labels",
    "commonAnnotations",
    "patchesStrategicMerge",
    "patchesJson6902",
    "patches",
    "images",
    "imageTags",
    "replacements",
    "replicas",
    "vars",
    "sortOptions",
    "resources",
    "components",
    "crds",
    "bases",
    "configMapGenerator",
    "secretGenerator",
    "helmGlobals",
    "helmCharts",
    "helmChartInflationGenerator",
    "generatorOptions",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "buildMetadata",
];

/// Deprecated fields and what replaces them.
const DEPRECATED: [(&str, &str); 5] = [
    ("bases", "resources"),
    ("commonLabels", "labels"),
    ("imageTags", "images"),
    ("patchesJson6902", "patches"),
    ("patchesStrategicMerge", "patches"),
];

const REFUSED: [&str; 6] = ["vars", "crds", "helmCharts", "helmChartInflationGenerator", "helmGlobals", "validators"];

const IMAGE_FIELDS: [&str; 5] = ["name", "newName", "tagSuffix", "newTag", "digest"];

/// Gives fields their names: as in Go's decoder of JSON, case does not matter where no field has exactly that name.
fn correct_case(value: &mut Value, names: &[&str]) {
    let Value::Object(fields) = value else { return };
    let wrong: Vec<String> = fields.keys().filter(|key| !names.contains(&key.as_str())).cloned().collect();
    for key in wrong {
        let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(&key)) else { continue };
        if let Some(value) = fields.remove(&key) {
            fields.insert((*name).to_owned(), value);
        }
    }
}

/// A kustomization and its directory.
#[derive(Clone, Debug)]
pub struct Kustomization {
    /// The directory, without links.
    pub root: PathBuf,
    /// The fields.
    pub fields: Value,
    /// Whether only files of the directory may be read.
    pub restricted: bool,
}

impl Kustomization {
    /// Reads the file of a directory.
    pub fn load(root: &Path) -> CommandResult<Self> {
        let found: Vec<(&str, Vec<u8>)> =
            FILES.into_iter().filter_map(|name| Some((name, std::fs::read(root.join(name)).ok()?))).collect();
        let content = match found.as_slice() {
            [(_, content)] => content,
            [] => crate::bail!(
                "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
                root.display()
            ),
            _ => crate::bail!("Found multiple kustomization files under: {}\n", root.display()),
        };
        let parsed =
            api::yaml::parse(content).map_err(|error| CommandError::new(format!("invalid Kustomization: {error}")))?;
        let mut fields = match parsed.value {
            Value::Null => Value::Object(Map::new()),
            value => value,
        };
        correct_case(&mut fields, &FIELDS);
        check_fields(&fields, root)?;
        move_deprecated(&mut fields);
        Ok(Kustomization { root: root.to_owned(), fields, restricted: true })
    }

    /// A kustomization of the same directory with other fields.
    pub fn with_fields(&self, fields: Value) -> Self {
        Kustomization { root: self.root.clone(), fields, restricted: self.restricted }
    }

    /// The text of a field.
    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The list of a field.
    pub fn list(&self, field: &str) -> &[Value] {
        self.fields.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The texts in a list.
    pub fn texts(&self, field: &str) -> Vec<String> {
        self.list(field).iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    /// The map of a field.
    pub fn map(&self, field: &str) -> Map {
        self.fields.get(field).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// Whether it is a component.
    pub fn is_component(&self) -> bool {
        self.text("kind") == "Component"
    }

    /// Reads a file of the directory.
    pub fn read(&self, path: &str) -> CommandResult<Vec<u8>> {
        let full = self.root.join(path);
        let shown = full.display();
        let inside = std::fs::canonicalize(&full).map_err(|error| {
            let cause = crate::files::os_error(&error);
            CommandError::new(format!("evalsymlink failure on '{shown}' : lstat {shown}: {cause}"))
        })?;
        if self.restricted && !inside.starts_with(&self.root) {
            crate::bail!("security; file '{}' is not in or below '{}'", inside.display(), self.root.display());
        }
        std::fs::read(&full)
            .map_err(|error| CommandError::new(format!("open {}: {}", full.display(), crate::files::os_error(&error))))
    }
}

fn check_fields(fields: &Value, root: &Path) -> CommandResult {
    let Some(map) = fields.as_object() else {
        crate::bail!(
            "invalid Kustomization: json: cannot unmarshal {} into Go value of type types.Kustomization",
            api::json::value_type_name(fields)
        );
    };
    for name in map.keys() {
        if !FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            crate::bail!("invalid Kustomization: json: unknown field {}", api::json::go_quote(name));
        }
    }
    check_types(fields)?;
    for (name, newer) in DEPRECATED {
        if map.contains_key(name) {
            errln!(
                "# Warning: '{name}' is deprecated. Please use '{newer}' instead. Run 'kustomize edit fix' to update your \
                 Kustomization automatically."
            );
        }
    }
    if let Some(name) = REFUSED.iter().find(|name| map.contains_key(**name)) {
        crate::bail!("{name} in {} is not supported by this kubectl", root.display());
    }
    if fields["openapi"].get("path").is_some() {
        crate::bail!("openapi.path in {} is not supported by this kubectl", root.display());
    }
    if map.keys().all(|name| ["apiVersion", "kind", "metadata"].contains(&name.as_str())) {
        crate::bail!("kustomization.yaml is empty");
    }
    let kind = fields["kind"].as_str().unwrap_or_default();
    let version = fields["apiVersion"].as_str().unwrap_or_default();
    let wanted =
        if kind == "Component" { "kustomize.config.k8s.io/v1alpha1" } else { "kustomize.config.k8s.io/v1beta1" };
    let mut faults = Vec::new();
    if !["", "Kustomization", "Component"].contains(&kind) {
        faults.push("kind should be Kustomization or Component".to_owned());
    }
    if !version.is_empty() && version != wanted {
        let kind = if kind.is_empty() { "Kustomization" } else { kind };
        faults.push(format!("apiVersion for {kind} should be {wanted}"));
    }
    if !faults.is_empty() {
        crate::bail!("Failed to read kustomization file under {}:\n{}", root.display(), faults.join("\n"));
    }
    Ok(())
}

/// Checks the fields whose values are easily no strings, such as `y` and versions.
fn check_types(fields: &Value) -> CommandResult {
    let check = |value: &Value, place: &str| match value {
        Value::String(_) | Value::Null => Ok(()),
        other => {
            let found = api::json::value_type_name(other);
            crate::bail!(
                "invalid Kustomization: json: cannot unmarshal {found} into Go struct field {place} of type string"
            )
        }
    };
    for field in ["namespace", "namePrefix", "nameSuffix"] {
        check(&fields[field], &format!("Kustomization.{field}"))?;
    }
    for field in ["commonLabels", "commonAnnotations"] {
        let values = fields[field].as_object().into_iter().flat_map(Map::values);
        values.into_iter().try_for_each(|value| check(value, &format!("Kustomization.{field}")))?;
    }
    let entries = |field: &str| fields[field].as_array().cloned().unwrap_or_default();
    for field in ["resources", "components", "bases"] {
        entries(field).iter().try_for_each(|value| check(value, &format!("Kustomization.{field}")))?;
    }
    for field in ["images", "imageTags"] {
        for (entry, name) in entries(field).iter().flat_map(|entry| IMAGE_FIELDS.map(|name| (entry.clone(), name))) {
            check(&entry[name], &format!("Image.{field}.{name}"))?;
        }
    }
    for entry in entries("labels") {
        let pairs = entry["pairs"].as_object().into_iter().flat_map(Map::values);
        pairs.into_iter().try_for_each(|value| check(value, "Label.labels.pairs"))?;
    }
    Ok(())
}

fn move_deprecated(fields: &mut Value) {
    for (old, new) in [("bases", "resources"), ("imageTags", "images")] {
        let Some(moved) = fields.get_mut(old).map(Value::take).and_then(|value| value.as_array().cloned()) else {
            continue;
        };
        match fields.get_mut(new).and_then(Value::as_array_mut) {
            Some(list) => list.extend(moved),
            None => fields[new] = moved.into(),
        }
    }
    for generator in ["configMapGenerator", "secretGenerator"] {
        for entry in fields.get_mut(generator).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(file) = entry.get_mut("env").map(Value::take).filter(Value::is_string) {
                match entry.get_mut("envs").and_then(Value::as_array_mut) {
                    Some(list) => list.push(file),
                    None => entry["envs"] = Value::Array(vec![file]),
                }
            }
        }
    }
}
