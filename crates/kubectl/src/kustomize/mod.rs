//! kustomize: builds the objects of a kustomization directory.

use api::Value;

use crate::errors::CommandResult;

/// Builds a directory.
pub fn build_directory(_directory: &str) -> CommandResult<Vec<Value>> {
    crate::bail!("kustomize is not supported by this kubectl")
}

/// The documents as a YAML stream.
pub fn render_documents(documents: &[Value]) -> String {
    documents.iter().map(api::yaml::write_document).collect::<Vec<_>>().join("---\n")
}
