//! `kubectl explain`: the fields of a resource, from the server's OpenAPI documents.

mod model_v2;
mod schema_v3;
mod wrapping;

use api::{Value, json::go_quote};

use crate::{
    discovery::{ApiResource, RestMapping, group_version},
    errors::{CommandError, CommandResult, PartialResource},
    jsonpath::JsonPath,
    object::split_api_version,
    output::write_out,
    rest::RestRequest,
    session::Session,
};

/// Explains a resource or one of its fields.
pub fn run(session: &Session) -> CommandResult {
    let argument = match session.arguments() {
        [] => crate::bail!(
            "You must specify the type of resource to explain. Use \"kubectl api-resources\" for a complete list of \
             supported resources.\n"
        ),
        [one] => one.strip_suffix('.').unwrap_or(one),
        _ => crate::bail!("We accept only this format: explain RESOURCE\n"),
    };
    let (mut mapping, path) = resolve_argument(session, argument)?;
    let format = session.flags.string("output");
    let version = session.flags.string("api-version");
    if !version.is_empty() {
        (mapping.group, mapping.version) = split_api_version(&version);
    }
    let recursive = session.flags.bool("recursive");
    if format == "plaintext-openapiv2" {
        return explain_v2(session, &mapping, &path, recursive);
    }
    let Ok(root) = session.client()?.send_json(RestRequest::get("/openapi/v3")) else {
        return explain_v2(session, &mapping, &path, recursive);
    };
    if format != "plaintext" {
        crate::bail!("unrecognized format: {format}");
    }
    let api = group_version(&mapping.group, &mapping.version);
    let key = if mapping.group.is_empty() { format!("api/{api}") } else { format!("apis/{api}") };
    let url = root["paths"][&key]["serverRelativeURL"].as_str();
    let Some(url) = url else {
        let shown = format!("{}/{}, Resource={}", mapping.group, mapping.version, mapping.resource);
        crate::bail!("couldn't find resource for {}", go_quote(&shown));
    };
    let document = session.client()?.send_json(RestRequest::get(url))?;
    let (text, error) = schema_v3::SchemaPrinter { document: &document, recursive }.print(&mapping, &path);
    write_out(&text);
    error
}

fn explain_v2(session: &Session, mapping: &RestMapping, path: &[String], recursive: bool) -> CommandResult {
    let document = session.client()?.send_json(RestRequest::get("/openapi/v2"))?;
    write_out(&model_v2::ModelPrinter { document: &document, recursive }.print(mapping, path)?);
    Ok(())
}

/// Splits `resource[.group].field.field`; the first resource of the name wins that the argument begins with.
fn resolve_argument(session: &Session, argument: &str) -> CommandResult<(RestMapping, Vec<String>)> {
    let names = field_names(argument)?;
    let (name, fields) = names.split_first().map_or(("", [].as_slice()), |(name, fields)| (name.as_str(), fields));
    let found = session.look_up_resource(|data| {
        let preferred = data.find_resource(name, "", "");
        let candidates: Vec<&ApiResource> = preferred.into_iter().chain(data.matching_resources(name)).collect();
        let rest_after = |resource: &ApiResource| {
            let dot = if resource.group.is_empty() { "" } else { "." };
            let rest = argument.strip_prefix(&format!("{}{dot}{}", resource.name, resource.group))?;
            (rest.is_empty() || rest.starts_with('.')).then(|| rest.trim_start_matches('.').to_owned())
        };
        let qualified = candidates.iter().find_map(|resource| Some((*resource, rest_after(resource)?)));
        match (qualified, preferred) {
            (Some((resource, rest)), _) => Some((RestMapping::from_resource(resource), Some(rest))),
            (None, Some(resource)) => Some((RestMapping::from_resource(resource), None)),
            (None, None) => data.find_argument(name).map(|mapping| (mapping, None)),
        }
    })?;
    let Some((mapping, rest)) = found else {
        let partial = PartialResource { resource: name.to_owned(), ..Default::default() };
        return Err(CommandError::NoResourceMatch(partial));
    };
    match rest.as_deref() {
        None => Ok((mapping, fields.to_vec())),
        Some("") => Ok((mapping, Vec::new())),
        Some(rest) => Ok((mapping, field_names(rest)?)),
    }
}

/// The names of a path of fields, which is a JSONPath without anything else.
fn field_names(path: &str) -> CommandResult<Vec<String>> {
    let parsed = JsonPath::parse(&format!("{{.{path}}}")).map_err(|error| CommandError::new(error.to_string()))?;
    let names = parsed.field_names();
    names.ok_or_else(|| CommandError::new("invalid jsonpath syntax, first node must be field node"))
}

/// Whether a schema or an operation belongs to a kind.
fn has_kind(schema: &Value, mapping: &RestMapping) -> bool {
    let fits = |entry: &Value| {
        entry["kind"] == mapping.kind.as_str()
            && entry["version"] == mapping.version.as_str()
            && entry["group"].as_str().unwrap_or_default() == mapping.group
    };
    match &schema["x-kubernetes-group-version-kind"] {
        Value::Array(entries) => entries.iter().any(fits),
        entry => fits(entry),
    }
}
