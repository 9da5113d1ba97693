//! Impersonation: the headers `Impersonate-User`, `-Group`, `-Uid` and `-Extra-…` and their authorization.
//!
//! The pipeline resolves impersonation right after authentication. Later stages see only the impersonated user; the
//! headers are removed.

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

/// Maximum number of users in the cache.
const MAX_CACHED_USERS: usize = 10_000;

/// The impersonated user and the verb that permitted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonatedUser {
    /// The impersonated user.
    pub user: User,
    /// The verb of the constrained mode; empty for the legacy mode, which permits any request.
    pub constraint: &'static str,
}

/// The last successful mode of each requestor: it is tried first, and its error is returned if no mode succeeds.
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

/// Resolves the `Impersonate-*` headers of a request with these attributes; `None` if there are none. 400 for invalid
/// headers, 403 if no mode permits it.
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
