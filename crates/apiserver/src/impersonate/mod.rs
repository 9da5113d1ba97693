//! Acting as somebody else: the headers `Impersonate-User`, `-Group`, `-Uid` and `-Extra-…`, and whether who sent them may.
//!
//! The pipeline asks before anything else is done for a request. What comes back is the user that later stages see; the
//! headers are gone, so that nobody can tell that somebody else asked.

mod headers;
mod modes;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use api::status::Status;
use apiserver_core::{User, attributes::Attributes};
use authz::Authorizers;
use http::HeaderMap;
use modes::MODES;

/// How many requestors' ways are remembered.
const MAX_CACHED_USERS: usize = 10_000;

/// Somebody's other self.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonatedUser {
    /// Who it is.
    pub user: User,
    /// The verb that allowed it; empty for the old way, which allows everything that the other may.
    pub constraint: &'static str,
}

/// Which way each requestor last succeeded: it is tried first the next time, and its reason is told if none succeeds.
#[derive(Default)]
pub struct LastModeCache {
    last: Mutex<HashMap<String, usize>>,
}

impl LastModeCache {
    fn last_mode(&self, name: &str) -> Option<usize> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn record_mode(&self, name: &str, mode: usize) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_CACHED_USERS {
            last.clear();
        }
        last.insert(name.to_owned(), mode);
    }
}

/// Who is to be impersonated in a request that `asked` describes; `None` if nobody is. 400 if the headers make no sense, 403
/// if that is not allowed.
pub async fn resolve_impersonation(
    authorizers: &Authorizers,
    ways: &LastModeCache,
    headers: &mut HeaderMap,
    asked: &Attributes<'_>,
) -> Result<Option<ImpersonatedUser>, Status> {
    let Some(wanted) = headers::take_impersonation_headers(headers)? else { return Ok(None) };
    let last = ways.last_mode(&asked.user.name);
    let order = last.into_iter().chain((0..MODES.len()).filter(|mode| Some(*mode) != last));
    let mut first = None;
    for mode in order {
        match MODES[mode].check_mode(authorizers, &wanted, asked).await {
            Ok(Some(impersonated)) => {
                if last != Some(mode) {
                    ways.record_mode(&asked.user.name, mode);
                }
                return Ok(Some(impersonated));
            }
            Ok(None) => {}
            Err(status) => first = first.or(Some(status)),
        }
    }
    Err(first.unwrap_or_else(|| Status::internal_error("all impersonation modes failed")))
}

#[cfg(test)]
mod tests;
