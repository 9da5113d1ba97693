//! Generators and transformers that a kustomization names by files or has inline: those that kustomize has built in, with the
//! configuration of the file in place of that of the kustomization. Programs as plug-ins are refused by name.

use api::{Map, Value};
use serde_json::json;

use super::{
    field_specs::{FieldSpecTables, parse_specs},
    generators,
    kustomization::Kustomization,
    patches, replacements,
    resources::BuildResource,
    transformers,
};
use crate::{
    errors::CommandResult,
    object::{ObjectFields, name_of, namespace_of},
};

/// Runs a generator.
pub fn run_generator(
    parent: &Kustomization,
    config: &BuildResource,
    resources: &mut Vec<BuildResource>,
) -> CommandResult {
    let config = &config.object;
    let field = match (config.text("apiVersion"), config.text("kind")) {
        ("builtin", "ConfigMapGenerator") => "configMapGenerator",
        ("builtin", "SecretGenerator") => "secretGenerator",
        (version, kind) => crate::bail!("generator {kind} of {version} is not supported by this kubectl"),
    };
    let mut arguments = config.clone();
    arguments["name"] = name_of(config).into();
    arguments["namespace"] = namespace_of(config).into();
    generators::run_generators(&parent.with_fields(json!({field: [arguments]})), resources)
}

/// Runs a transformer.
pub fn run_transformer(
    parent: &Kustomization,
    tables: &FieldSpecTables,
    config: &BuildResource,
    resources: &mut Vec<BuildResource>,
) -> CommandResult {
    let config = &config.object;
    let (version, kind) = (config.text("apiVersion"), config.text("kind"));
    if version != "builtin" {
        crate::bail!("transformer {kind} of {version} is not supported by this kubectl");
    }
    let (mut tables, specs) = (tables.clone(), parse_specs(config.list("fieldSpecs")));
    let value = |field: &str| config.get(field).cloned().unwrap_or_default();
    let with =
        |field: &str, value: Value| parent.with_fields(Value::Object(Map::from_iter([(field.to_owned(), value)])));
    match kind {
        "PrefixTransformer" => {
            tables.name_prefix = specs;
            transformers::add_prefix_and_suffix(&with("namePrefix", value("prefix")), &tables, resources);
        }
        "SuffixTransformer" => {
            tables.name_suffix = specs;
            transformers::add_prefix_and_suffix(&with("nameSuffix", value("suffix")), &tables, resources);
        }
        "NamespaceTransformer" => {
            tables.namespace = specs;
            transformers::set_namespace(&with("namespace", namespace_of(config).into()), &tables, resources);
        }
        "LabelTransformer" => {
            tables.common_labels = specs;
            transformers::add_labels(&with("commonLabels", value("labels")), &tables, resources);
        }
        "AnnotationsTransformer" => {
            tables.annotations = specs;
            transformers::add_annotations(&with("commonAnnotations", value("annotations")), &tables, resources);
        }
        "ImageTagTransformer" => {
            tables.images = specs;
            transformers::set_images(&with("images", json!([value("imageTag")])), &tables, resources);
        }
        "ReplicaCountTransformer" => {
            tables.replicas = specs;
            transformers::set_replicas(&with("replicas", json!([value("replica")])), &tables, resources)?;
        }
        "PatchTransformer" => patches::apply_patches(&with("patches", json!([config])), "patches", resources)?,
        "PatchJson6902Transformer" => {
            let entry = json!({"target": value("target"), "path": value("path"), "patch": value("jsonOp")});
            let entry = with("patchesJson6902", json!([entry]));
            patches::apply_patches(&entry, "patchesJson6902", resources)?;
        }
        "PatchStrategicMergeTransformer" => {
            let mut entries = config.list("paths").to_vec();
            entries.extend((!config.text("patches").is_empty()).then(|| value("patches")));
            patches::apply_strategic_files(&with("patchesStrategicMerge", entries.into()), resources)?;
        }
        "ReplacementTransformer" => {
            replacements::apply_replacements(&with("replacements", value("replacements")), resources)?;
        }
        other => crate::bail!("transformer {other} is not supported by this kubectl"),
    }
    Ok(())
}
