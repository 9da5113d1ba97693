//! The authorizers that say the same to everybody.

use apiserver_core::{User, attributes::Attributes};
use async_trait::async_trait;

use super::{Authorizer, Decision, Reason, ResolvedRules, Rule};

/// Everybody may do everything.
pub struct Allow;
/// Nobody may do anything.
pub struct Deny;

#[async_trait]
impl Authorizer for Allow {
    async fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allowed(Reason::none())
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        let all = || vec!["*".to_owned()];
        let resources = Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() };
        ResolvedRules {
            rules: vec![resources, Rule { verbs: all(), paths: all(), ..Rule::default() }],
            ..ResolvedRules::default()
        }
    }
}

#[async_trait]
impl Authorizer for Deny {
    async fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::NoOpinion("Everything is forbidden.".into())
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        ResolvedRules::default()
    }
}

#[cfg(test)]
mod tests {
    use apiserver_core::attributes::{AttributesTarget, ResourceAttributes};
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
        let pods = ResourceAttributes {
            version: "v1",
            resource: "pods",
            namespace: "a",
            name: "p",
            ..ResourceAttributes::default()
        };
        let secrets = ResourceAttributes { version: "v1", resource: "secrets", ..ResourceAttributes::default() };
        let users = [user("admin", &["system:masters"]), user("joe", &["devs"]), user("system:anonymous", &[])];
        for user in &users {
            for (verb, asked) in [
                ("get", AttributesTarget::Resource(pods)),
                ("delete", AttributesTarget::Resource(secrets)),
                ("*", AttributesTarget::Resource(ResourceAttributes::default())),
                ("get", AttributesTarget::NonResource("/healthz")),
                ("post", AttributesTarget::NonResource("/nope")),
            ] {
                let attributes = Attributes { user, verb, target: asked };
                let said = |authorizer: &dyn Authorizer| {
                    let verdict = authorizer.authorize(&attributes).now_or_never().expect("nobody is asked");
                    (verdict.is_allowed(), verdict.reason().to_string())
                };
                assert_eq!(said(&Allow), (true, String::new()), "{} {verb}", user.name);
                assert_eq!(said(&Deny), (false, "Everything is forbidden.".to_owned()), "{} {verb}", user.name);
            }
            assert_eq!((Allow.rules_for(user, "a").rules.len(), Deny.rules_for(user, "a").rules.len()), (2, 0));
        }
    }
}
