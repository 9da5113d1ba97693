//! Walks kustomizations: resources, bases and components, with the transformations of each directory.

use std::path::{Path, PathBuf};

use api::Value;

use super::{
    field_specs::FieldSpecTables,
    generators,
    kustomization::Kustomization,
    name_references, patches, plugins, replacements,
    resources::{BuildResource, ResourceFileError, append_resource, parse_resources},
    sort_order, transformers,
};
use crate::{
    errors::{CommandError, CommandResult},
    files::{clean_path, os_error},
    flag_set::FlagSet,
};

/// Options of a build that flags of `kubectl kustomize` set.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildOptions {
    /// Whether files outside of the directory may be read.
    pub allows_outside_files: bool,
    /// Whether resources get the label of the program that manages them.
    pub adds_managed_by: bool,
}

impl BuildOptions {
    /// Reads the flags.
    pub fn from_flags(flags: &FlagSet) -> CommandResult<Self> {
        let allows_outside_files = match flags.string("load-restrictor").as_str() {
            "" | "LoadRestrictionsRootOnly" => false,
            "LoadRestrictionsNone" => true,
            other => crate::bail!(
                "illegal flag value --load-restrictor {other}; legal values: [LoadRestrictionsRootOnly LoadRestrictionsNone]"
            ),
        };
        Ok(BuildOptions { allows_outside_files, adds_managed_by: flags.bool("enable-managedby-label") })
    }
}

/// Builds a directory.
pub fn build_directory(directory: &str, options: &BuildOptions) -> CommandResult<Vec<Value>> {
    let root = real_directory(directory, Path::new(directory))
        .map_err(|error| CommandError::new(format!("must build at directory: {error}")))?;
    let mut kustomization = Kustomization::load(&root)?;
    kustomization.restricted = !options.allows_outside_files;
    let mut build = KustomizeBuild {
        options: *options,
        visiting: vec![root.clone()],
        specs: FieldSpecTables::default(),
        top: root,
    };
    let mut resources = build.accumulate(&kustomization, Vec::new())?;
    for resource in resources.iter_mut().filter(|resource| resource.needs_hash) {
        resource.remember();
        let name = format!(
            "{}-{}",
            resource.object["metadata"]["name"].as_str().unwrap_or_default(),
            generators::hash_of(&resource.object)
        );
        resource.object["metadata"]["name"] = name.into();
    }
    name_references::update_references(&mut resources, &build.specs)?;
    resources.retain(|resource| {
        let annotations = &resource.object["metadata"]["annotations"];
        annotations["config.kubernetes.io/local-config"].as_str().is_none_or(|value| value == "false")
    });
    if options.adds_managed_by && !kustomization.texts("buildMetadata").iter().any(|option| option == "managedByLabel")
    {
        add_managed_by(&mut resources);
    }
    add_build_metadata(&kustomization, &mut resources)?;
    sort_order::sort_resources(&kustomization, &mut resources)?;
    Ok(resources.into_iter().map(|resource| resource.object).collect())
}

fn add_managed_by(resources: &mut [BuildResource]) {
    for resource in resources {
        resource.object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "kustomize-v5.8.1".into();
    }
}

fn add_build_metadata(kustomization: &Kustomization, resources: &mut [BuildResource]) -> CommandResult {
    for option in kustomization.texts("buildMetadata") {
        match option.as_str() {
            "managedByLabel" => add_managed_by(resources),
            "originAnnotations" => {
                for resource in resources.iter_mut().filter(|resource| !resource.origin.is_empty()) {
                    let origin = format!("path: {}\n", resource.origin);
                    resource.object["metadata"]["annotations"]["config.kubernetes.io/origin"] = origin.into();
                }
            }
            other => crate::bail!("buildMetadata {other} is not supported by this kubectl"),
        }
    }
    Ok(())
}

/// The directory without links; the error names the path as it was given.
fn real_directory(shown: &str, path: &Path) -> CommandResult<PathBuf> {
    let full = std::path::absolute(path).map_err(|error| CommandError::new(error.to_string()))?;
    let full = clean_path(&full);
    let real = std::fs::canonicalize(&full).map_err(|error| {
        // The path up to the first part that is missing.
        let missing = full.ancestors().filter(|part| !part.exists()).last().unwrap_or(&full);
        CommandError::new(format!(
            "not a valid directory: evalsymlink failure on '{shown}' : lstat {}: {}",
            missing.display(),
            os_error(&error)
        ))
    })?;
    if !real.is_dir() {
        crate::bail!("'{shown}': file is not directory");
    }
    Ok(real)
}

fn is_remote(path: &str) -> bool {
    path.contains("://") || path.starts_with("git@") || path.starts_with("github.com/") || path.contains("?ref=")
}

struct KustomizeBuild {
    options: BuildOptions,
    visiting: Vec<PathBuf>,
    specs: FieldSpecTables,
    top: PathBuf,
}

impl KustomizeBuild {
    fn accumulate(
        &mut self,
        kustomization: &Kustomization,
        mut resources: Vec<BuildResource>,
    ) -> CommandResult<Vec<BuildResource>> {
        for path in kustomization.texts("resources") {
            self.add_path(kustomization, &path, &mut resources)
                .map_err(|error| CommandError::new(format!("accumulating resources: {error}")))?;
        }
        for path in kustomization.texts("configurations") {
            self.specs.merge(&kustomization.read(&path)?, &path)?;
        }
        generators::run_generators(kustomization, &mut resources)?;
        for config in self.plugin_configs(kustomization, "generators")? {
            plugins::run_generator(kustomization, &config, &mut resources)?;
        }
        for path in kustomization.texts("components") {
            resources = self
                .add_component(kustomization, &path, resources)
                .map_err(|error| CommandError::new(format!("accumulating components: {error}")))?;
        }
        self.transform(kustomization, &mut resources)?;
        for config in self.plugin_configs(kustomization, "transformers")? {
            plugins::run_transformer(kustomization, &self.specs, &config, &mut resources)?;
        }
        Ok(resources)
    }

    /// The configurations of plug-ins that a field has inline or names as resources are named.
    fn plugin_configs(&mut self, kustomization: &Kustomization, field: &str) -> CommandResult<Vec<BuildResource>> {
        let mut configs = Vec::new();
        for entry in kustomization.texts(field) {
            match parse_resources(entry.as_bytes(), &entry) {
                Ok(inline) if !inline.is_empty() => configs.extend(inline),
                _ => self.add_path(kustomization, &entry, &mut configs)?,
            }
        }
        Ok(configs)
    }

    /// Adds a file, or a directory if it is none.
    fn add_path(&mut self, parent: &Kustomization, path: &str, resources: &mut Vec<BuildResource>) -> CommandResult {
        if is_remote(path) {
            crate::bail!("remote resource {} is not supported by this kubectl", api::json::go_quote(path));
        }
        let full = clean_path(&parent.root.join(path));
        let missing = match std::fs::symlink_metadata(&full) {
            Ok(_) => None,
            Err(error) => Some(format!(
                "evalsymlink failure on '{}' : lstat {}: {}",
                full.display(),
                full.display(),
                os_error(&error)
            )),
        };
        if let Some(missing) = missing {
            crate::bail!(
                "accumulation err='accumulating resources from '{path}': {missing}': must build at directory: not a \
                 valid directory: {missing}"
            );
        }
        if !full.is_dir() {
            return self.add_file(parent, path, &full, resources);
        }
        self.add_directory(parent, &full, resources).map_err(|error| {
            CommandError::new(format!(
                "accumulation err='accumulating resources from '{path}': '{}' must resolve to a file': {error}",
                full.display()
            ))
        })
    }

    /// Adds the resources of a file. Where they do not fit, upstream tries the path as a directory too, and reports both.
    fn add_file(
        &mut self,
        parent: &Kustomization,
        path: &str,
        full: &Path,
        resources: &mut Vec<BuildResource>,
    ) -> CommandResult {
        let no_directory = |error: String| {
            let full = full.display();
            CommandError::new(format!(
                "accumulation err='{error}': must build at directory: '{full}': file is not directory"
            ))
        };
        let from = |error: &dyn std::fmt::Display| format!("accumulating resources from '{path}': {error}");
        let bytes = parent.read(path).map_err(|error| no_directory(from(&error)))?;
        let parsed = parse_resources(&bytes, path).map_err(|error| match error {
            ResourceFileError::Malformed(..) => CommandError::new(from(&error)),
            ResourceFileError::Unfit(_) => no_directory(from(&error)),
        })?;
        for mut resource in parsed {
            resource.origin = relative_to(&self.top, full);
            append_resource(resources, resource)
                .map_err(|error| no_directory(format!("merging resources from '{path}': {error}")))?;
        }
        Ok(())
    }

    /// Adds what another kustomization builds.
    fn add_directory(
        &mut self,
        parent: &Kustomization,
        full: &Path,
        resources: &mut Vec<BuildResource>,
    ) -> CommandResult {
        let real = real_directory(&full.to_string_lossy(), full)?;
        self.enter(parent, &real)?;
        let mut base = Kustomization::load(&real).map_err(|error| {
            CommandError::new(format!("couldn't make target for path '{}': {error}", real.display()))
        })?;
        base.restricted = !self.options.allows_outside_files;
        if base.is_component() {
            crate::bail!("expected kind != 'Component' for path '{}'", real.display());
        }
        let built = self.accumulate(&base, Vec::new()).map_err(|error| {
            CommandError::new(format!("recursed accumulation of path '{}': {error}", real.display()))
        })?;
        self.visiting.pop();
        for resource in built {
            append_resource(resources, resource).map_err(|error| {
                CommandError::new(format!("recursed merging from path '{}': {error}", real.display()))
            })?;
        }
        Ok(())
    }

    /// Notes that a directory is being built; one that is being built already is a cycle.
    fn enter(&mut self, parent: &Kustomization, real: &Path) -> CommandResult {
        if self.visiting.iter().any(|known| known == real) || self.visiting.len() > 64 {
            crate::bail!(
                "cycle detected: candidate root '{}' contains visited root '{}'",
                real.display(),
                parent.root.display()
            );
        }
        self.visiting.push(real.to_owned());
        Ok(())
    }

    fn add_component(
        &mut self,
        parent: &Kustomization,
        path: &str,
        resources: Vec<BuildResource>,
    ) -> CommandResult<Vec<BuildResource>> {
        if is_remote(path) {
            crate::bail!("remote component {} is not supported by this kubectl", api::json::go_quote(path));
        }
        let full = clean_path(&parent.root.join(path));
        let real = real_directory(&full.to_string_lossy(), &full)?;
        self.enter(parent, &real)?;
        let mut component = Kustomization::load(&real)?;
        component.restricted = !self.options.allows_outside_files;
        if !component.is_component() {
            crate::bail!(
                "accumulateDirectory: \"expected kind 'Component' for path '{}' but got '{}'\"",
                real.display(),
                if component.text("kind").is_empty() { "Kustomization" } else { component.text("kind") }
            );
        }
        let built = self.accumulate(&component, resources)?;
        self.visiting.pop();
        Ok(built)
    }

    /// Runs the transformers of a directory, in upstream's order.
    fn transform(&self, kustomization: &Kustomization, resources: &mut Vec<BuildResource>) -> CommandResult {
        patches::apply_strategic_files(kustomization, resources)?;
        patches::apply_patches(kustomization, "patches", resources)?;
        transformers::set_namespace(kustomization, &self.specs, resources);
        transformers::add_prefix_and_suffix(kustomization, &self.specs, resources);
        transformers::add_labels(kustomization, &self.specs, resources);
        transformers::add_annotations(kustomization, &self.specs, resources);
        patches::apply_patches(kustomization, "patchesJson6902", resources)?;
        transformers::set_replicas(kustomization, &self.specs, resources)?;
        transformers::set_images(kustomization, &self.specs, resources);
        replacements::apply_replacements(kustomization, resources)
    }
}

fn relative_to(top: &Path, path: &Path) -> String {
    let mut up = String::new();
    let mut base = top.to_owned();
    while !path.starts_with(&base) {
        up += "../";
        if !base.pop() {
            break;
        }
    }
    format!("{up}{}", path.strip_prefix(&base).unwrap_or(path).display())
}
