//! The authorizers that say the same to everybody.

use async_trait::async_trait;

use super::{Attributes, Authorizer, Verdict};
use crate::settings::Mode;

struct AlwaysAllow;
struct AlwaysDeny;

/// The authorizer of a mode.
pub fn of(mode: Mode) -> Box<dyn Authorizer> {
    match mode {
        Mode::AlwaysAllow => Box::new(AlwaysAllow),
        Mode::AlwaysDeny => Box::new(AlwaysDeny),
    }
}

#[async_trait]
impl Authorizer for AlwaysAllow {
    async fn decide(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::Allowed("".into())
    }
}

#[async_trait]
impl Authorizer for AlwaysDeny {
    async fn decide(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::NoOpinion("Everything is forbidden.".into())
    }
}
