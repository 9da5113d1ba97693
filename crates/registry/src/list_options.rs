//! `ListOptions` of a list or a watch, validated with upstream's rules and error texts.

use api::{status::Status, validate::FieldError};
use apiserver_core::request::ResourceRequest;
use store::{ResourceVersionMatch, Revision};

use super::{
    continue_token::{self, ContinueToken},
    selection::SelectionPredicate,
};

const MATCH: &str = "resourceVersionMatch";
const EXACT: &str = "Exact";
const NOT_OLDER: &str = "NotOlderThan";

/// Parsed and validated `ListOptions`.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// The label and field selectors.
    pub selection: SelectionPredicate,
    /// `resourceVersion`, as it was sent.
    pub revision: String,
    revision_match: String,
    /// Maximum number of objects; `None`: unlimited.
    pub limit: Option<usize>,
    continue_token: Option<String>,
    /// `sendInitialEvents`: whether a watch starts with the existing objects.
    pub send_initial_events: Option<bool>,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `timeoutSeconds`.
    pub timeout: Option<i64>,
}

/// The state that a list reads and the start of the page.
pub struct ListStart {
    /// The revision to read.
    pub at: ResourceVersionMatch,
    /// The page starts after this key.
    pub after: Option<String>,
}

impl ListOptions {
    /// Parses the query of a request.
    pub fn from_request(request: &ResourceRequest) -> Result<Self, Status> {
        let query = &request.query;
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let mut options = Self {
            selection: SelectionPredicate::from_request(request)?,
            revision: text("resourceVersion"),
            revision_match: text(MATCH),
            limit: None,
            continue_token: query.get("continue").map(str::to_owned),
            send_initial_events: query.get_all("sendInitialEvents").next().map(parse_flag),
            bookmarks: query.is_set("allowWatchBookmarks"),
            timeout: parse_integer(query.get("timeoutSeconds"))?,
        };
        let limit = parse_integer(query.get("limit"))?;
        options.limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let watch = request.verb == "watch";
        if watch {
            options.default_initial_events();
        }
        let errors = if watch { options.watch_errors() } else { options.list_errors() };
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(Status::invalid_kind("meta.k8s.io", "ListOptions", "", &errors))
        }
    }

    /// A watch without `resourceVersion` starts with the existing objects.
    fn default_initial_events(&mut self) {
        if self.send_initial_events.is_none()
            && self.revision_match.is_empty()
            && matches!(self.revision.as_str(), "" | "0")
        {
            self.send_initial_events = Some(true);
            NOT_OLDER.clone_into(&mut self.revision_match);
        }
    }

    fn list_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = self.revision_match.as_str();
        let mut forbidden = |when: bool, why: &str| {
            if when && !given.is_empty() {
                errors.push(FieldError::forbidden(MATCH, why));
            }
        };
        forbidden(self.revision.is_empty(), "resourceVersionMatch is forbidden unless resourceVersion is provided");
        forbidden(self.continue_token.is_some(), "resourceVersionMatch is forbidden when continue is provided");
        if !matches!(given, "" | EXACT | NOT_OLDER) {
            errors.push(FieldError::not_supported(MATCH, given, &[EXACT, NOT_OLDER, ""]));
        }
        if given == EXACT && self.revision == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = self.revision_match.as_str();
        if self.send_initial_events.is_some() && given != NOT_OLDER {
            let why = format!("sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}");
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if given.is_empty() {
            return errors;
        }
        if self.send_initial_events.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if given != NOT_OLDER {
            errors.push(FieldError::not_supported(MATCH, given, &[NOT_OLDER]));
        }
        if self.continue_token.is_some() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        errors
    }

    /// Resolves revision and start of the page; `prefix` is the key prefix of the collection.
    pub fn list_start(&self, prefix: &str) -> Result<ListStart, Status> {
        if let Some(text) = &self.continue_token {
            let token =
                continue_token::decode_continue_token(text).map_err(|error| Status::bad_request(error.to_string()))?;
            if !matches!(self.revision.as_str(), "" | "0") {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            let ContinueToken { revision, after } = token;
            let at = revision.map_or(ResourceVersionMatch::Newest, ResourceVersionMatch::Exactly);
            return Ok(ListStart { at, after: Some(format!("{prefix}{after}")) });
        }
        let invalid = |why| Status::bad_request(format!("invalid resource version: {why}"));
        let revision = parse_resource_version(&self.revision).map_err(invalid)?;
        let legacy_exact = self.revision_match.is_empty() && self.limit.is_some();
        let at = match revision {
            None => ResourceVersionMatch::Newest,
            Some(0) => ResourceVersionMatch::Any,
            Some(revision) if self.revision_match == EXACT || legacy_exact => ResourceVersionMatch::Exactly(revision),
            Some(revision) => ResourceVersionMatch::NotBefore(revision),
        };
        Ok(ListStart { at, after: None })
    }

    /// Parses the `resourceVersion` of a watch or a get request.
    pub fn parse_revision(text: &str) -> Result<Option<Revision>, Status> {
        // Upstream gives neither a reason nor a better code.
        parse_resource_version(text).map_err(|error| Status::new(500, "", error.to_string()))
    }
}

/// Parses a query flag as upstream's conversion does: everything but `false` and `0` is true.
fn parse_flag(text: &str) -> bool {
    !(text.eq_ignore_ascii_case("false") || text == "0")
}

fn parse_integer(text: Option<&str>) -> Result<Option<i64>, Status> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(error) => {
            Err(Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {}", parse_int_reason(&error))))
        }
    }
}

/// A malformed `resourceVersion`, with the text of Go's `strconv`.
#[derive(Debug, thiserror::Error)]
#[error("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {}", parse_int_reason(source))]
struct ResourceVersionError {
    text: String,
    source: std::num::ParseIntError,
}

/// Parses a `resourceVersion`; `None` if it is empty.
fn parse_resource_version(text: &str) -> Result<Option<Revision>, ResourceVersionError> {
    if text.is_empty() {
        return Ok(None);
    }
    let digits = if text.starts_with('+') { "+" } else { text };
    digits.parse().map(Some).map_err(|source| ResourceVersionError { text: text.to_owned(), source })
}

fn parse_int_reason(error: &std::num::ParseIntError) -> &'static str {
    match error.kind() {
        std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}
