//! `kubectl explain`: the fields of a resource, from the server's OpenAPI documents.

mod model_v2;
mod schema_v3;
mod wrapping;

use api::{Value, json::go_quote};

use crate::{
    discovery::{ApiResource, RestMapping, group_version},
    errors::{CommandError, CommandResult, PartialResource},
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
        [one] => one.trim_end_matches('.'),
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

/// Splits `resource[.group].field.field`.
fn resolve_argument(session: &Session, argument: &str) -> CommandResult<(RestMapping, Vec<String>)> {
    let (name, fields) = argument.split_once('.').unwrap_or((argument, ""));
    let found = session.look_up(|data| {
        let candidates: Vec<&ApiResource> = data.matching_resources(name);
        let qualified = candidates.iter().find(|resource| {
            let full = format!("{}.{}", resource.name, resource.group);
            !resource.group.is_empty()
                && argument.strip_prefix(&full).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        let rest = |resource: &ApiResource| {
            argument[resource.name.len() + 1 + resource.group.len()..].trim_start_matches('.').to_owned()
        };
        match (qualified, data.find_resource(name, "", "")) {
            (Some(resource), _) => Some((RestMapping::from_resource(resource), rest(resource))),
            (None, Some(resource)) => Some((RestMapping::from_resource(resource), fields.to_owned())),
            (None, None) => data.find_argument(name).map(|mapping| (mapping, fields.to_owned())),
        }
    })?;
    let Some((mapping, fields)) = found else {
        let partial = PartialResource { resource: name.to_owned(), ..Default::default() };
        return Err(CommandError::NoResourceMatch(partial));
    };
    Ok((mapping, fields.split('.').filter(|field| !field.is_empty()).map(str::to_owned).collect()))
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
