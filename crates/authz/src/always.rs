//! The authorizers that say the same to everybody.

use apiserver_core::{User, attributes::Attributes};
use async_trait::async_trait;

use super::{Authorizer, Reason, Rule, Rules, Verdict};

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

#[cfg(test)]
mod tests {
    use apiserver_core::attributes::{Asked, Resource};
    use futures::FutureExt;

    use super::*;

    /// Whoever asks for whatever is told the same.
    #[test]
    fn everybody_is_told_the_same() {
        let user = |name: &str, groups: &[&str]| User {
            name: name.into(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        };
        let pods = Resource { version: "v1", resource: "pods", namespace: "a", name: "p", ..Resource::default() };
        let secrets = Resource { version: "v1", resource: "secrets", ..Resource::default() };
        let users = [user("admin", &["system:masters"]), user("joe", &["devs"]), user("system:anonymous", &[])];
        for user in &users {
            for (verb, asked) in [
                ("get", Asked::Resource(pods)),
                ("delete", Asked::Resource(secrets)),
                ("*", Asked::Resource(Resource::default())),
                ("get", Asked::Path("/healthz")),
                ("post", Asked::Path("/nope")),
            ] {
                let attributes = Attributes { user, verb, asked };
                let said = |authorizer: &dyn Authorizer| {
                    let verdict = authorizer.decide(&attributes).now_or_never().expect("nobody is asked");
                    (verdict.is_allowed(), verdict.reason().to_string())
                };
                assert_eq!(said(&Allow), (true, String::new()), "{} {verb}", user.name);
                assert_eq!(said(&Deny), (false, "Everything is forbidden.".to_owned()), "{} {verb}", user.name);
            }
            assert_eq!((Allow.rules(user, "a").rules.len(), Deny.rules(user, "a").rules.len()), (2, 0));
        }
    }
}
