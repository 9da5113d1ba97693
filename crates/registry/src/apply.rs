//! Server-side apply: merge a configuration into an object, or create the object from it.

use api::{Value, apply, json, meta, status::Status, yaml};
use apiserver_core::{body::RequestBody, request::ResourceRequest};

use super::{
    FieldValidation, Outcome, Registry, WriteOptions,
    update::{UpdateContext, UpdateScope, named_as},
};

/// The content type of an applied configuration.
pub const CONTENT_TYPE: &str = "application/apply-patch+yaml";

impl Registry {
    /// Applies to an object, or to a part of it through a subresource.
    pub(super) async fn apply_part(
        &self,
        target: &ResourceRequest,
        input: &RequestBody,
        part: UpdateScope,
    ) -> Result<Outcome, Status> {
        let options = WriteOptions::of_apply(target)?;
        let config = Configuration::parse(&input.body)?;
        let merge = |live: Option<&Value>| {
            let writer = options.writer(apply::ApplyTarget::for_resource(&target.resource, &target.subresource));
            let force = options.force.unwrap_or_default();
            let applied = apply::apply_config(&writer, live, &config.value, force);
            if let Some(mut why) = options.conversions.failure() {
                why.message = format!("failed to convert old object: {}", why.message);
                return Err(why);
            }
            let mut object = applied.map_err(|error| error.to_status())?;
            config.check(target, options.validation)?;
            identified(target, live, &mut object)?;
            Ok(object)
        };
        let changed = self.change(target, UpdateContext::asked(part, &options), |current| merge(Some(current))).await;
        let (changed, code) = match changed {
            Err(status) if status.code == 404 && part == UpdateScope::Main => {
                (self.create_object(target, merge(None)?, options.dry_run).await?, 201)
            }
            changed => (changed?, 200),
        };
        Ok(changed.outcome(code))
    }
}

/// The object must be the one that the path names; a new one has no identity yet.
fn identified(target: &ResourceRequest, live: Option<&Value>, object: &mut Value) -> Result<(), Status> {
    if live.is_none() {
        if meta::name(object).is_empty() {
            let message = format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                target.name
            );
            return Err(Status::bad_request(message));
        }
        let uid = meta::uid(object);
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&target.resource, &target.name, &why));
        }
    }
    named_as(target, object)
}

/// What a client applies.
pub(super) struct Configuration {
    /// The part of an object that it wants.
    pub value: Value,
    /// What strict decoding says of it.
    violation: Option<String>,
}

impl Configuration {
    /// Reads YAML, of which JSON is a part.
    pub fn parse(body: &[u8]) -> Result<Self, Status> {
        let unreadable = |error: String| Status::bad_request(format!("error decoding YAML: {error}"));
        let (value, violation) = match json::parse(body) {
            Ok((value, twice)) if twice.is_empty() => (value, None),
            _ => {
                let parsed = yaml::parse(body).map_err(|error| unreadable(error.to_string()))?;
                let violation = parsed.violation().map(|text| format!("error converting YAML to JSON: {text}"));
                (parsed.value, violation)
            }
        };
        match value {
            Value::Object(_) | Value::Null => Ok(Self { value, violation }),
            _ => Err(unreadable("error unmarshaling JSON: while decoding JSON: it is not an object".to_owned())),
        }
    }

    fn check(&self, target: &ResourceRequest, validation: FieldValidation) -> Result<(), Status> {
        match (&self.violation, validation) {
            (Some(text), FieldValidation::Strict) => {
                return Err(Status::bad_request(format!("error strict decoding YAML: {text}")));
            }
            (Some(text), FieldValidation::Warn) => target.notes.warn(text),
            _ => {}
        }
        Ok(())
    }
}
