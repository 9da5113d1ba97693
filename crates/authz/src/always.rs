//! The modes AlwaysAllow and AlwaysDeny.

use apiserver_core::{User, attributes::Attributes};
use async_trait::async_trait;

use super::{Authorizer, Decision, PolicyRule, Reason, ResolvedRules};

/// Allows all requests.
pub struct AlwaysAllowAuthorizer;
/// Allows no request.
pub struct AlwaysDenyAuthorizer;

#[async_trait]
impl Authorizer for AlwaysAllowAuthorizer {
    async fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allowed(Reason::none())
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        let all = || vec!["*".to_owned()];
        let resources = PolicyRule { verbs: all(), groups: all(), resources: all(), ..PolicyRule::default() };
        ResolvedRules {
            rules: vec![resources, PolicyRule { verbs: all(), paths: all(), ..PolicyRule::default() }],
            ..ResolvedRules::default()
        }
    }
}

#[async_trait]
impl Authorizer for AlwaysDenyAuthorizer {
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

    /// The decision is the same for all users and requests.
    #[test]
    fn decision_is_the_same_for_all_requests() {
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
            for (verb, target) in [
                ("get", AttributesTarget::Resource(pods)),
                ("delete", AttributesTarget::Resource(secrets)),
                ("*", AttributesTarget::Resource(ResourceAttributes::default())),
                ("get", AttributesTarget::NonResource("/healthz")),
                ("post", AttributesTarget::NonResource("/nope")),
            ] {
                let attributes = Attributes { user, verb, target };
                let decide = |authorizer: &dyn Authorizer| {
                    let decision = authorizer.authorize(&attributes).now_or_never().expect("no waiting");
                    (decision.is_allowed(), decision.reason().to_string())
                };
                assert_eq!(decide(&AlwaysAllowAuthorizer), (true, String::new()), "{} {verb}", user.name);
                assert_eq!(
                    decide(&AlwaysDenyAuthorizer),
                    (false, "Everything is forbidden.".to_owned()),
                    "{} {verb}",
                    user.name
                );
            }
            assert_eq!(
                (
                    AlwaysAllowAuthorizer.rules_for(user, "a").rules.len(),
                    AlwaysDenyAuthorizer.rules_for(user, "a").rules.len()
                ),
                (2, 0)
            );
        }
    }
}
