//! Parts of the builder: splitting of arguments and lists, and explanations of errors.

use api::{Value, json::go_quote};

use super::ResourceInfo;
use crate::{
    discovery::RestMapping,
    errors::{CommandError, CommandResult},
    files,
    object::{self, ObjectFields},
    rest::RestRequest,
    session::Session,
};

/// An object that is missing because its namespace is gets the error of the namespace.
pub fn explain_not_found(session: &Session, info: &ResourceInfo, error: CommandError) -> CommandError {
    if !error.is_not_found()
        || info.namespace.is_empty()
        || info.subresource.is_empty() && error.to_string().starts_with("the server could")
    {
        return error;
    }
    let path = format!("/api/v1/namespaces/{}", info.namespace);
    match session.client().and_then(|client| client.send_json(RestRequest::get(path))) {
        Err(missing) if missing.is_not_found() => missing,
        _ => error,
    }
}

/// The name of a resource in list errors.
fn mapping_text(mapping: &RestMapping) -> String {
    let group_version = mapping.api_version();
    let plural = mapping.resource.as_str();
    if mapping.group.is_empty() {
        format!("/{group_version}, Resource={plural}")
    } else {
        format!("{group_version}, Resource={plural}")
    }
}

/// Gives items of a list the type that lists leave out.
pub fn set_type_meta(item: &mut Value, mapping: &RestMapping) {
    if let Value::Object(map) = item {
        if map.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() {
            map.insert("kind".into(), mapping.kind.clone().into());
        }
        if map.get("apiVersion").and_then(Value::as_str).unwrap_or_default().is_empty() {
            map.insert("apiVersion".into(), mapping.api_version().into());
        }
    }
}

/// The items of a list, and of lists in it.
pub fn flatten_list(list: Value) -> Vec<Value> {
    let mut items = Vec::new();
    let kind = list.text("kind").trim_end_matches("List").to_owned();
    let api_version = list.text("apiVersion").to_owned();
    for mut item in list.list("items").to_vec() {
        if !kind.is_empty() && item.is_object() && item.text("kind").is_empty() {
            item["kind"] = kind.clone().into();
            item["apiVersion"] = api_version.clone().into();
        }
        if object::is_list(&item) { items.extend(flatten_list(item)) } else { items.push(item) }
    }
    items
}

/// The resource types of an argument, each once.
pub fn split_types(argument: &str) -> Vec<String> {
    let mut types: Vec<String> = Vec::new();
    for word in argument.split(',') {
        if !types.iter().any(|known| known == word) {
            types.push(word.to_owned());
        }
    }
    types
}

/// Splits `resource/name`.
pub fn split_pair(argument: &str) -> CommandResult<(String, String)> {
    let parts: Vec<&str> = argument.split('/').collect();
    let [resource, name] = parts.as_slice() else {
        crate::bail!("arguments in resource/name form may not have more than one slash");
    };
    if resource.is_empty() || name.is_empty() || resource.contains(',') {
        crate::bail!("arguments in resource/name form must have a single resource and name");
    }
    Ok(((*resource).to_owned(), (*name).to_owned()))
}

/// Reads all of stdin.
pub fn read_stdin() -> CommandResult<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| CommandError::new(format!("error reading STDIN: {error}")))?;
    Ok(bytes)
}

/// Adds the selectors to the error of a list.
pub fn explain_list_error(error: CommandError, mapping: &RestMapping, labels: &str, fields: &str) -> CommandError {
    let reason = error.reason().to_owned();
    let CommandError::Status(mut status) = error else { return error };
    if reason == "BadRequest" || reason == "NotFound" {
        let subject = match (labels, fields) {
            ("", "") => String::new(),
            _ => format!(" that match label selector {}, field selector {}", go_quote(labels), go_quote(fields)),
        };
        if !subject.is_empty() {
            let text = mapping_text(mapping);
            let message = format!("Unable to find {}{subject}: {}", go_quote(&text), status.message());
            status.status["message"] = message.into();
        }
    }
    CommandError::Status(status)
}

/// The items of a visit and its errors.
#[derive(Debug, Default)]
pub struct BuildResult {
    /// The items.
    pub infos: Vec<ResourceInfo>,
    /// The errors, in the order in which they came up.
    pub errors: Vec<CommandError>,
    /// Whether the arguments name exactly one object.
    pub single_item: bool,
}

/// A place where manifests are.
pub enum ManifestSource {
    /// Standard input.
    Stdin,
    /// A file.
    File(String),
    /// A URL.
    Url(String),
    /// A kustomization directory.
    Kustomization(String),
}

impl ManifestSource {
    /// The name and the content.
    pub fn read(&self) -> CommandResult<(String, Vec<u8>)> {
        match self {
            ManifestSource::Stdin => read_stdin().map(|bytes| ("STDIN".to_owned(), bytes)),
            ManifestSource::File(path) => files::read_file(path).map(|bytes| (path.clone(), bytes)),
            ManifestSource::Url(url) => crate::remote_file::download(url).map(|bytes| (url.clone(), bytes)),
            ManifestSource::Kustomization(directory) => {
                crate::kustomize::build_directory(directory, &crate::kustomize::BuildOptions::default())
                    .map(|documents| (directory.clone(), crate::kustomize::render_documents(&documents).into_bytes()))
            }
        }
    }
}

/// The error of a command without resources.
pub const MISSING: &str = "You must provide one or more resources by argument or filename.\n\
    Example resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   '<resource> <name>'\n   '<resource>'";
