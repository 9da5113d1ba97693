//! Server-side apply: merge a configuration into an object, or create the object from it.

use api::{Value, apply, json, meta, status::Status, yaml};
use apiserver_core::{body::RequestBody, request::ResourceRequest};

use super::{
    FieldValidation, Registry, RequestOutcome, WriteOptions,
    update::{UpdateContext, UpdateScope, check_identity},
};

impl Registry {
    /// Applies a configuration to an object or a subresource; creates a missing object.
    pub(super) async fn apply_in_scope(
        &self,
        request: &ResourceRequest,
        body: &RequestBody,
        scope: UpdateScope,
    ) -> Result<RequestOutcome, Status> {
        let options = WriteOptions::from_apply_request(request)?;
        let config = ApplyConfiguration::parse(&body.body)?;
        let merge = |live: Option<&Value>| {
            let writer =
                options.apply_request(apply::ApplyTarget::for_resource(&request.resource, &request.subresource));
            let force = options.force.unwrap_or_default();
            let applied = apply::apply_config(&writer, live, &config.value, force);
            if let Some(mut why) = options.converter.failure() {
                why.message = format!("failed to convert old object: {}", why.message);
                return Err(why);
            }
            let mut object = applied.map_err(|error| error.to_status())?;
            config.check_strict(request, options.validation)?;
            check_applied_identity(request, live, &mut object)?;
            Ok(object)
        };
        let changed = self
            .update_object(request, UpdateContext::for_client(scope, &options), |current| merge(Some(current)))
            .await;
        let (changed, code) = match changed {
            Err(status) if status.is_not_found() && scope == UpdateScope::Main => {
                (self.create_object(request, merge(None)?, options.dry_run).await?, 201)
            }
            changed => (changed?, 200),
        };
        Ok(changed.into_outcome(code))
    }
}

/// Checks name, namespace and, for a new object, that the configuration sets no UID.
fn check_applied_identity(request: &ResourceRequest, live: Option<&Value>, object: &mut Value) -> Result<(), Status> {
    if live.is_none() {
        if meta::name(object).is_empty() {
            let message = format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                request.name
            );
            return Err(Status::bad_request(message));
        }
        let uid = meta::uid(object);
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&request.resource, &request.name, &why));
        }
    }
    check_identity(request, object)
}

/// A parsed apply configuration.
pub(super) struct ApplyConfiguration {
    /// The partial object.
    pub value: Value,
    /// The strict decoding error, if any.
    violation: Option<String>,
}

impl ApplyConfiguration {
    /// Parses JSON or YAML.
    pub fn parse(body: &[u8]) -> Result<Self, Status> {
        let unreadable = |error: String| Status::bad_request(format!("error decoding YAML: {error}"));
        let (value, violation) = match json::parse(body) {
            Ok((value, twice)) if twice.is_empty() => (value, None),
            _ => {
                let parsed =
                    yaml::parse(body).map_err(|error| unreadable(format!("error converting YAML to JSON: {error}")))?;
                let violation =
                    parsed.duplicate_key_error().map(|text| format!("error converting YAML to JSON: {text}"));
                (parsed.value, violation)
            }
        };
        match value {
            Value::Object(_) | Value::Null => Ok(Self { value, violation }),
            _ => Err(unreadable("error unmarshaling JSON: while decoding JSON: it is not an object".to_owned())),
        }
    }

    fn check_strict(&self, request: &ResourceRequest, validation: FieldValidation) -> Result<(), Status> {
        match (&self.violation, validation) {
            (Some(text), FieldValidation::Strict) => {
                return Err(Status::bad_request(format!("error strict decoding YAML: {text}")));
            }
            (Some(text), FieldValidation::Warn) => request.warnings.add_warning(text),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_yaml_has_upstreams_error() {
        let error = ApplyConfiguration::parse(b"a: b: c").err().unwrap();
        assert_eq!(error.code, 400);
        let prefix = "error decoding YAML: error converting YAML to JSON: yaml: ";
        assert!(error.message.starts_with(prefix), "{}", error.message);
        assert_eq!(ApplyConfiguration::parse(b"{a: b}").ok().unwrap().value["a"], "b");
    }
}
