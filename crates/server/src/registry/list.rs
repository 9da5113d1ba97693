//! Lists: selectors, pages, and which revision they are true for.

use api::{convert, status::Status};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use store::{Range, Record, Revision};

use super::{Registry, failed, selection::Selection};
use crate::{document, request::Target};

/// How many records are read at once while a selector thins them out.
const CHUNK: usize = 500;

/// One page of objects.
pub struct List {
    /// In the order of their names.
    pub records: Vec<Record>,
    /// The revision that the whole list is true for.
    pub revision: Revision,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
    /// How many objects follow; unknown with a selector.
    pub remaining: Option<usize>,
}

/// What a continue token holds.
#[derive(Serialize, Deserialize)]
struct Token {
    rv: Revision,
    after: String,
}

impl Registry {
    /// A list as its query asks for it.
    pub async fn list(&self, target: &Target) -> Result<List, Status> {
        let selection = Selection::of(target)?;
        let limit = match target.query.get("limit").map(str::parse::<usize>) {
            None | Some(Ok(0)) => None,
            Some(Ok(limit)) => Some(limit),
            Some(Err(_)) => return Err(Status::bad_request("limit must be a number that is not negative")),
        };
        let (at, after) = start(target)?;
        self.page(target, &selection, limit, at, after).await
    }

    async fn page(
        &self,
        target: &Target,
        selection: &Selection,
        limit: Option<usize>,
        mut at: Option<Revision>,
        mut after: Option<String>,
    ) -> Result<List, Status> {
        let mut records: Vec<Record> = Vec::new();
        let everything = selection.is_everything();
        loop {
            let wanted = limit.map(|limit| if everything { limit - records.len() } else { CHUNK });
            let range = Range {
                prefix: document::key(target.resource, &target.namespace, ""),
                after: after.clone(),
                limit: wanted,
                at,
            };
            let page = self.store().list(range).await.map_err(|error| gone(target, error))?;
            at = Some(page.revision);
            after = page.records.last().map(|record| record.key.to_string());
            for record in page.records {
                if everything || selected(target, selection, &record)? {
                    records.push(record);
                }
                if limit.is_some_and(|limit| records.len() == limit) {
                    break;
                }
            }
            let full = limit.is_some_and(|limit| records.len() == limit);
            if full || page.remaining == 0 {
                let last = records.last().map(|record| record.key.to_string());
                let more = full && (page.remaining > 0 || last != after);
                let next = last.filter(|_| more).map(|after| token(page.revision, after));
                return Ok(List {
                    records,
                    revision: page.revision,
                    next,
                    remaining: everything.then_some(page.remaining),
                });
            }
        }
    }
}

fn selected(target: &Target, selection: &Selection, record: &Record) -> Result<bool, Status> {
    let object = document::object(record).map_err(Status::internal)?;
    Ok(selection.matches(&convert::to(target.resource, object)))
}

/// The revision and the key to start at.
fn start(target: &Target) -> Result<(Option<Revision>, Option<String>), Status> {
    if let Some(text) = target.query.get("continue") {
        let invalid = || Status::bad_request("continue key is not valid: the token could not be decoded");
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| invalid())?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        return Ok((Some(token.rv), Some(token.after)));
    }
    let revision = revision(target)?;
    match (target.query.get("resourceVersionMatch"), revision) {
        (None | Some("NotOlderThan"), _) => Ok((None, None)),
        (Some("Exact"), Some(revision)) if revision > 0 => Ok((Some(revision), None)),
        (Some(other), _) => Err(Status::bad_request(format!(
            "resourceVersionMatch: Invalid value: {other:?}: it needs a resourceVersion and is Exact or NotOlderThan"
        ))),
    }
}

/// The `resourceVersion` of a query.
pub fn revision(target: &Target) -> Result<Option<Revision>, Status> {
    match target.query.get("resourceVersion").map(str::parse) {
        None => Ok(None),
        Some(Ok(revision)) => Ok(Some(revision)),
        Some(Err(_)) => {
            let text = target.query.get("resourceVersion").unwrap_or_default();
            Err(Status::bad_request(format!("resourceVersion: Invalid value: {text:?}: it is not a number")))
        }
    }
}

fn token(rv: Revision, after: String) -> String {
    // A struct of a number and a text can always be written.
    BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&Token { rv, after }).unwrap_or_default())
}

fn gone(target: &Target, error: store::Error) -> Status {
    match error {
        store::Error::Compacted { .. } if target.query.get("continue").is_some() => Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
             the continue parameter.",
        ),
        error => failed(target.resource, "", error),
    }
}
