//! The authorizers that say the same to everybody.

use async_trait::async_trait;

use super::{Attributes, Authorizer, Reason, Rule, Rules, Verdict};
use crate::User;

/// Everybody may do everything.
pub struct Allow;
/// Nobody may do anything.
pub struct Deny;

#[async_trait]
impl Authorizer for Allow {
    async fn decide(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::Allowed(Reason::none())
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        let all = || vec!["*".to_owned()];
        let resources = Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() };
        Rules { rules: vec![resources, Rule { verbs: all(), paths: all(), ..Rule::default() }], ..Rules::default() }
    }
}

#[async_trait]
impl Authorizer for Deny {
    async fn decide(&self, _: &Attributes<'_>) -> Verdict {
        Verdict::NoOpinion("Everything is forbidden.".into())
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}
