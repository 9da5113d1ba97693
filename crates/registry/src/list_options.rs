//! What a client asks of a list or a watch, checked as upstream checks it: the same refusals in the same words.

use api::{status::Status, validate::FieldError};
use apiserver_core::request::ResourceRequest;
use store::{ResourceVersionMatch, Revision};

use super::{list_token, list_token::Token, selection::Selection};

const MATCH: &str = "resourceVersionMatch";
const EXACT: &str = "Exact";
const NOT_OLDER: &str = "NotOlderThan";

/// What a client asks of a list or a watch.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Which objects.
    pub selection: Selection,
    /// `resourceVersion`, as it was sent.
    pub revision: String,
    revision_match: String,
    /// At most so many objects; `None`: all.
    pub limit: Option<usize>,
    next: Option<String>,
    /// Whether a watch begins with what exists already.
    pub initial: Option<bool>,
    /// Whether a watch tells how far it is.
    pub bookmarks: bool,
    /// How long a watch lasts, in seconds.
    pub timeout: Option<i64>,
}

/// Which state a list shows, and where in it the page begins.
pub struct Start {
    /// The state.
    pub at: ResourceVersionMatch,
    /// Only what comes after this key.
    pub after: Option<String>,
}

impl ListOptions {
    /// Reads the query of a request.
    pub fn of(target: &ResourceRequest) -> Result<Self, Status> {
        let query = &target.query;
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let mut options = Self {
            selection: Selection::of(target)?,
            revision: text("resourceVersion"),
            revision_match: text(MATCH),
            limit: None,
            next: query.get("continue").map(str::to_owned),
            initial: query.all("sendInitialEvents").next().map(is_set),
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout: number(query.get("timeoutSeconds"))?,
        };
        let limit = number(query.get("limit"))?;
        options.limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let watch = target.verb == "watch";
        if watch {
            options.begin_with_existing();
        }
        let errors = if watch { options.watch_errors() } else { options.list_errors() };
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(Status::invalid_kind("meta.k8s.io", "ListOptions", "", &errors))
        }
    }

    /// A watch that names no revision wants what exists.
    fn begin_with_existing(&mut self) {
        if self.initial.is_none() && self.revision_match.is_empty() && matches!(self.revision.as_str(), "" | "0") {
            self.initial = Some(true);
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
        forbidden(self.next.is_some(), "resourceVersionMatch is forbidden when continue is provided");
        if !matches!(given, "" | EXACT | NOT_OLDER) {
            errors.push(FieldError::not_supported(MATCH, given, &[EXACT, NOT_OLDER, ""]));
        }
        if given == EXACT && self.revision == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if self.initial.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let given = self.revision_match.as_str();
        if self.initial.is_some() && given != NOT_OLDER {
            let why = format!("sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}");
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if given.is_empty() {
            return errors;
        }
        if self.initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if given != NOT_OLDER {
            errors.push(FieldError::not_supported(MATCH, given, &[NOT_OLDER]));
        }
        if self.next.is_some() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        errors
    }

    /// Which page of which state a list shows; `prefix` is that of the collection.
    pub fn start(&self, prefix: &str) -> Result<Start, Status> {
        if let Some(text) = &self.next {
            let token = list_token::read(text).map_err(Status::bad_request)?;
            if !matches!(self.revision.as_str(), "" | "0") {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            let Token { revision, after } = token;
            let at = revision.map_or(ResourceVersionMatch::Newest, ResourceVersionMatch::Exactly);
            return Ok(Start { at, after: Some(format!("{prefix}{after}")) });
        }
        let invalid = |why: String| Status::bad_request(format!("invalid resource version: {why}"));
        let revision = revision(&self.revision).map_err(invalid)?;
        let legacy_exact = self.revision_match.is_empty() && self.limit.is_some();
        let at = match revision {
            None => ResourceVersionMatch::Newest,
            Some(0) => ResourceVersionMatch::Any,
            Some(revision) if self.revision_match == EXACT || legacy_exact => ResourceVersionMatch::Exactly(revision),
            Some(revision) => ResourceVersionMatch::NotBefore(revision),
        };
        Ok(Start { at, after: None })
    }

    /// The revision that a watch, or a read of one object, names.
    pub fn parsed_revision(text: &str) -> Result<Option<Revision>, Status> {
        // Upstream gives neither a reason nor a better code.
        revision(text).map_err(|message| Status { code: 500, reason: "", message, details: None, continue_token: None })
    }
}

/// What Go takes a text in a query for.
fn is_set(text: &str) -> bool {
    !(text.eq_ignore_ascii_case("false") || text == "0")
}

fn number(text: Option<&str>) -> Result<Option<i64>, Status> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(error) => Err(Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {}", why(&error)))),
    }
}

/// `None` for an empty text.
fn revision(text: &str) -> Result<Option<Revision>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let digits = if text.starts_with('+') { "+" } else { text };
    digits.parse().map(Some).map_err(|error| {
        format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {}", why(&error))
    })
}

fn why(error: &std::num::ParseIntError) -> &'static str {
    match error.kind() {
        std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}
