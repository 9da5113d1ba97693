//! Options of writes: dry run, field validation and field manager.

use api::{
    Value, apply, meta,
    status::Status,
    validate::{FieldError, FieldErrorType},
};
use apiextensions::DeferredConverter;
use apiserver_core::{body::RequestBody, clock, query::Query, request::ResourceRequest};
use serde_json::json;

/// Maximum length of a field manager in bytes.
const MAX_MANAGER: usize = 128;

/// Parsed `CreateOptions`, `UpdateOptions` or `PatchOptions`.
#[derive(Debug)]
pub struct WriteOptions {
    /// Whether the write is not stored.
    pub dry_run: bool,
    /// Handling of unknown and duplicate fields.
    pub validation: FieldValidation,
    /// The field manager; empty if neither query nor user agent name one.
    pub field_manager: String,
    /// Whether an apply takes fields from other managers.
    pub force: Option<bool>,
    /// Converts between versions of a custom resource for managed fields.
    pub converter: DeferredConverter,
    now: String,
}

/// Handling of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    Warn,
    /// Reject the object.
    Strict,
}

impl WriteOptions {
    /// Parses the query of a create, update or non-apply patch.
    pub fn from_request(request: &ResourceRequest, body: &RequestBody) -> Result<Self, Status> {
        let (mut options, mut errors) = Self::parse_query(&request.query);
        if request.verb == "patch" && options.force.is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if options.field_manager.is_empty() {
            options.field_manager = field_manager_from_user_agent(&body.user_agent);
        }
        options.validate(request, &errors)
    }

    /// Parses the query of an apply, which requires a field manager.
    pub fn from_apply_request(request: &ResourceRequest) -> Result<Self, Status> {
        let (options, mut errors) = Self::parse_query(&request.query);
        if options.field_manager.is_empty() {
            errors.insert(0, FieldError::required("fieldManager", "is required for apply patch"));
        }
        options.validate(request, &errors)
    }

    /// The apply request of this field manager.
    pub fn apply_request<'a>(&'a self, kind: apply::ApplyTarget<'a>) -> apply::ApplyRequest<'a> {
        let kind = kind.with_converter(&self.converter);
        apply::ApplyRequest { target: kind, manager: &self.field_manager, now: &self.now }
    }

    /// Updates the managed fields; removes all of them if a version conversion failed.
    pub fn track_managed_fields(&self, kind: apply::ApplyTarget<'_>, live: Option<&Value>, object: &mut Value) {
        apply::track_update(&self.apply_request(kind), live, object);
        if self.converter.failure().is_some() {
            meta::metadata_mut(object).remove("managedFields");
        }
    }

    fn validate(self, request: &ResourceRequest, errors: &[FieldError]) -> Result<Self, Status> {
        let kind = match request.verb {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            _ => "PatchOptions",
        };
        if errors.is_empty() { Ok(self) } else { Err(Status::invalid_kind("meta.k8s.io", kind, "", errors)) }
    }

    fn parse_query(query: &Query) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let manager = query.get("fieldManager").unwrap_or_default().to_owned();
        check_field_manager(&manager, &mut errors);
        let dry_run: Vec<&str> = query.get_all("dryRun").filter(|value| !value.is_empty()).collect();
        if dry_run.iter().any(|value| *value != "All") {
            errors.push(FieldError::not_supported("dryRun", json!(dry_run), &["All"]));
        }
        let validation = match query.get("fieldValidation") {
            Some("Ignore") => FieldValidation::Ignore,
            None | Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                errors.push(FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Ignore
            }
        };
        let force =
            query.get_all("force").next().map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"));
        let (dry_run, conversions, now) = (!dry_run.is_empty(), DeferredConverter::default(), clock::now_in_seconds());
        (Self { dry_run, validation, field_manager: manager, force, converter: conversions, now }, errors)
    }
}

fn check_field_manager(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > MAX_MANAGER {
        let message = format!("may not be more than {MAX_MANAGER} bytes");
        errors.push(FieldError::new("fieldManager", FieldErrorType::TooLong, message));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let message = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid("fieldManager", manager, message));
    }
}

/// The part before the first slash of a user agent such as `kubectl/v1.36.4 (linux/amd64)`.
fn field_manager_from_user_agent(text: &str) -> String {
    let mut out = String::new();
    for c in text.split('/').next().unwrap_or_default().chars().filter(|c| is_printable(*c)) {
        if out.len() + c.len_utf8() > MAX_MANAGER {
            break;
        }
        out.push(c);
    }
    out
}

fn is_printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agent_names_the_field_manager() {
        assert_eq!(field_manager_from_user_agent("kubectl/v1.36.4 (linux/amd64) kubernetes/abc"), "kubectl");
        assert_eq!(field_manager_from_user_agent("my agent\t"), "my agent");
        assert_eq!(
            field_manager_from_user_agent("").len() + field_manager_from_user_agent(&"x".repeat(500)).len(),
            MAX_MANAGER
        );
    }

    #[test]
    fn query_errors_are_reported_together() {
        let check = |query: &str| {
            WriteOptions::parse_query(&Query::parse(query)).1.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(check("dryRun=All&fieldValidation=Strict&fieldManager=a").is_empty());
        assert!(check("fieldManager=a%07b")[0].ends_with("invalid character U+0007 (at position 1)"));
        assert_eq!(check("dryRun=x&fieldValidation=y").len(), 2);
        let long = check(&format!("fieldManager={}", "x".repeat(129)));
        assert_eq!(long, ["fieldManager: Too long: may not be more than 128 bytes"]);
    }
}
