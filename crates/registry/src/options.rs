//! What a client may ask of every write: to do everything but store, what to do about unknown fields, and who it is.

use api::{
    Value, apply, meta,
    status::Status,
    validate::{FieldError, FieldErrorType},
};
use apiextensions::DeferredConverter;
use apiserver_core::{body::RequestBody, clock, query::Query, request::ResourceRequest};
use serde_json::json;

/// The longest name of a manager of fields, in bytes.
const MAX_MANAGER: usize = 128;

/// What a client asks of a write.
#[derive(Debug)]
pub struct WriteOptions {
    /// Do everything but store.
    pub dry_run: bool,
    /// What to do about unknown fields.
    pub validation: FieldValidation,
    /// Who owns what is changed; empty if the client says nothing of itself.
    pub manager: String,
    /// Whether to take fields from their owners; only an apply may say so.
    pub force: Option<bool>,
    /// What is asked about other versions to tell who owns what.
    pub conversions: DeferredConverter,
    now: String,
}

/// What to do about unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    Warn,
    /// Refuse the object.
    Strict,
}

impl WriteOptions {
    /// Reads the query of a write that is not an apply.
    pub fn of(target: &ResourceRequest, input: &RequestBody) -> Result<Self, Status> {
        let (mut options, mut errors) = Self::read(&target.query);
        if target.verb == "patch" && options.force.is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if options.manager.is_empty() {
            options.manager = from_user_agent(&input.user_agent);
        }
        options.checked(target, &errors)
    }

    /// Reads the query of an apply, which must say who applies.
    pub fn of_apply(target: &ResourceRequest) -> Result<Self, Status> {
        let (options, mut errors) = Self::read(&target.query);
        if options.manager.is_empty() {
            errors.insert(0, FieldError::required("fieldManager", "is required for apply patch"));
        }
        options.checked(target, &errors)
    }

    /// Who writes through a path of a kind.
    pub fn writer<'a>(&'a self, kind: apply::ApplyTarget<'a>) -> apply::ApplyRequest<'a> {
        let kind = kind.with_converter(&self.conversions);
        apply::ApplyRequest { target: kind, manager: &self.manager, now: &self.now }
    }

    /// Notes the owner of what a write changes. Where that cannot be told for want of a version, none are kept.
    pub fn note(&self, kind: apply::ApplyTarget<'_>, live: Option<&Value>, object: &mut Value) {
        apply::track_update(&self.writer(kind), live, object);
        if self.conversions.failure().is_some() {
            meta::metadata_mut(object).remove("managedFields");
        }
    }

    fn checked(self, target: &ResourceRequest, errors: &[FieldError]) -> Result<Self, Status> {
        let kind = match target.verb {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            _ => "PatchOptions",
        };
        if errors.is_empty() { Ok(self) } else { Err(Status::invalid_kind("meta.k8s.io", kind, "", errors)) }
    }

    fn read(query: &Query) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let manager = query.get("fieldManager").unwrap_or_default().to_owned();
        check_manager(&manager, &mut errors);
        let dry_run: Vec<&str> = query.all("dryRun").filter(|value| !value.is_empty()).collect();
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
            query.all("force").next().map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"));
        let (dry_run, conversions, now) = (!dry_run.is_empty(), DeferredConverter::default(), clock::seconds());
        (Self { dry_run, validation, manager, force, conversions, now }, errors)
    }
}

fn check_manager(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > MAX_MANAGER {
        let message = format!("may not be more than {MAX_MANAGER} bytes");
        errors.push(FieldError::new("fieldManager", FieldErrorType::TooLong, message));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let message = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid("fieldManager", manager, message));
    }
}

/// What stands before the first slash of `kubectl/v1.36.4 (linux/amd64)`.
fn from_user_agent(text: &str) -> String {
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
    fn managers_are_named_by_their_user_agent() {
        assert_eq!(from_user_agent("kubectl/v1.36.4 (linux/amd64) kubernetes/abc"), "kubectl");
        assert_eq!(from_user_agent("my agent\t"), "my agent");
        assert_eq!(from_user_agent("").len() + from_user_agent(&"x".repeat(500)).len(), MAX_MANAGER);
    }

    #[test]
    fn queries_are_checked_all_at_once() {
        let check = |query: &str| {
            WriteOptions::read(&Query::parse(query)).1.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(check("dryRun=All&fieldValidation=Strict&fieldManager=a").is_empty());
        assert!(check("fieldManager=a%07b")[0].ends_with("invalid character U+0007 (at position 1)"));
        assert_eq!(check("dryRun=x&fieldValidation=y").len(), 2);
        let long = check(&format!("fieldManager={}", "x".repeat(129)));
        assert_eq!(long, ["fieldManager: Too long: may not be more than 128 bytes"]);
    }
}
