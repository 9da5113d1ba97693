//! `kubectl create token`

use serde_json::json;

use crate::{
    errors::{CommandError, CommandResult},
    object::ObjectFields,
    output::{is_terminal, write_out},
    printers::{OBJECT_FORMATS, ObjectPrinter},
    rest::RestRequest,
    session::Session,
    usage::usage_error,
};

/// Requests a token of a service account and prints it.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let [name] = session.arguments() else {
        let count = session.arguments().len();
        return Err(usage_error(session, &format!("exactly one NAME is required, got {count}")));
    };
    let (namespace, _) = session.namespace()?;
    let printer = ObjectPrinter::with_formats(flags, "", &OBJECT_FORMATS)?;
    let duration = flags.duration("duration");
    if duration < 0 {
        crate::bail!("--duration must be greater than or equal to 0");
    }
    if duration % 1_000_000_000 != 0 {
        crate::bail!("--duration cannot be expressed in units less than seconds");
    }
    let audiences = flags.strings("audience");
    if audiences.iter().any(String::is_empty) {
        crate::bail!("--audience must not be an empty string");
    }
    let mut spec = json!({"audiences": if audiences.is_empty() { api::Value::Null } else { audiences.into() }, "expirationSeconds": null, "boundObjectRef": null});
    if duration > 0 {
        spec["expirationSeconds"] = (duration / 1_000_000_000).into();
    }
    if let Some(reference) = bound_object(session)? {
        spec["boundObjectRef"] = reference;
    }
    let body = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": spec, "status": {"token": "", "expirationTimestamp": null}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let answer = session.client()?.send_json(RestRequest::new(http::Method::POST, path).with_json(&body));
    let answer = answer.map_err(|error| CommandError::new(format!("failed to create token: {error}")))?;
    let token = answer.text("status.token");
    if token.is_empty() {
        crate::bail!("failed to create token: no token in server response");
    }
    if !printer.is_message() {
        return printer.print_typed(&answer);
    }
    write_out(token);
    if is_terminal() {
        write_out("\n");
    }
    Ok(())
}

fn bound_object(session: &Session) -> CommandResult<Option<api::Value>> {
    let flags = &session.flags;
    let (kind, name, uid) =
        (flags.string("bound-object-kind"), flags.string("bound-object-name"), flags.string("bound-object-uid"));
    if kind.is_empty() {
        if !name.is_empty() {
            crate::bail!("--bound-object-name can only be set if --bound-object-kind is provided");
        }
        if !uid.is_empty() {
            crate::bail!("--bound-object-uid can only be set if --bound-object-kind is provided");
        }
        return Ok(None);
    }
    if !["Node", "Pod", "Secret"].contains(&kind.as_str()) {
        crate::bail!("supported --bound-object-kind values are Node, Pod, Secret");
    }
    if name.is_empty() {
        crate::bail!("--bound-object-name is required if --bound-object-kind is provided");
    }
    let mut reference = json!({"kind": kind, "apiVersion": "v1", "name": name});
    if !uid.is_empty() {
        reference["uid"] = uid.into();
    }
    Ok(Some(reference))
}
