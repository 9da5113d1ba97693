//! `kubectl kustomize`

use crate::{
    errors::{CommandError, CommandResult},
    files::os_error,
    kustomize::{BuildOptions, build_directory, render_documents},
    output::write_out,
    session::Session,
};

/// Builds a directory and prints or writes its objects.
pub fn run(session: &Session) -> CommandResult {
    let directory = match session.arguments() {
        [] => ".",
        [one] => one,
        _ => crate::bail!("specify one path to kustomization.yaml"),
    };
    let options = BuildOptions::from_flags(&session.flags)?;
    let documents = build_directory(directory, &options)?;
    let output = session.flags.string("output");
    if output.is_empty() {
        write_out(&render_documents(&documents));
        return Ok(());
    }
    let path = std::path::Path::new(&output);
    let failed = |path: &std::path::Path, error: &std::io::Error| {
        CommandError::new(format!("open {}: {}", path.display(), os_error(error)))
    };
    if !path.is_dir() {
        return std::fs::write(path, render_documents(&documents)).map_err(|error| failed(path, &error));
    }
    for document in &documents {
        let (group, version, kind) = crate::object::group_version_kind(document);
        let group = if group.is_empty() { String::new() } else { format!("{group}_") };
        let name = crate::object::name_of(document);
        let file = path.join(format!("{group}{version}_{kind}_{name}.yaml").to_lowercase());
        std::fs::write(&file, api::yaml::write_document(document)).map_err(|error| failed(&file, &error))?;
    }
    Ok(())
}
