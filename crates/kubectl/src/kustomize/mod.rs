//! kustomize: builds the objects of a kustomization directory.
//!
//! A directory's resources are read, generated and then transformed in the order of upstream's transformers; a base is
//! built first and becomes resources of its overlay. Hashes and references to names come last, over everything. Remote
//! bases, programs as plug-ins, validators, Helm charts, `vars`, `crds` and schemas of one's own are refused by name.

mod accumulate;
mod field_specs;
mod generators;
mod kustomization;
mod name_references;
mod patches;
mod plugins;
mod replacements;
mod resources;
mod sort_order;
mod strategic_merge;
mod transformers;

use api::Value;

pub use accumulate::{BuildOptions, build_directory};

/// The documents as a YAML stream.
pub fn render_documents(documents: &[Value]) -> String {
    documents.iter().map(api::yaml::write_document).collect::<Vec<_>>().join("---\n")
}
