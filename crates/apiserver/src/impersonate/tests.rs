//! Tests of impersonation: the checked permissions and the resulting user.

use apiserver_core::attributes::{AttributesTarget, ResourceAttributes};
use async_trait::async_trait;
use authz::{Authorizer, Decision, ResolvedRules};
use http::{HeaderName, HeaderValue};

use super::*;
use crate::{ServerOptions, fixture};

/// Allows what it is told to: `verb group/resource/subresource namespace/name`.
struct Only(Vec<String>);

#[async_trait]
impl Authorizer for Only {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let AttributesTarget::Resource(asked) = &attributes.target else { return Decision::NoOpinion("".into()) };
        let ResourceAttributes { group, resource, subresource, namespace, name, .. } = asked;
        let right = format!("{} {group}/{resource}/{subresource} {namespace}/{name}", attributes.verb);
        if self.0.contains(&right) { Decision::Allowed("".into()) } else { Decision::NoOpinion("".into()) }
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        ResolvedRules::default()
    }
}

struct Bench {
    authorizers: std::sync::Arc<Authorizers>,
    ways: LastModeCache,
    user: User,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(rights: &[&str]) -> Self {
        let (server, dir) = fixture::start_server(ServerOptions::default()).await;
        let only = Only(rights.iter().map(|right| (*right).to_owned()).collect());
        let user = User { name: "alice".into(), groups: vec!["system:authenticated".into()], ..User::default() };
        let authorizers = Authorizers::with_authorizers(vec![Box::new(only)], server.registry().cache()).unwrap();
        Self { authorizers, ways: LastModeCache::default(), user, _dir: dir }
    }

    /// Returns the user of a pod list in `n` with these headers, and the headers that remain.
    async fn resolve(&self, headers: &[(&str, &str)]) -> (Result<Option<ImpersonatedUser>, Status>, HeaderMap) {
        let pair =
            |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        let mut headers: HeaderMap = headers.iter().map(pair).collect();
        let pods =
            ResourceAttributes { version: "v1", resource: "pods", namespace: "n", ..ResourceAttributes::default() };
        let asked = Attributes { user: &self.user, verb: "list", target: AttributesTarget::Resource(pods) };
        let found = resolve_impersonation(&self.authorizers, &self.ways, &mut headers, &asked).await;
        (found, headers)
    }

    async fn check(&self, headers: &[(&str, &str)], want: &str) {
        let (got, left) = self.resolve(headers).await;
        let told = match got {
            Ok(None) => "nobody".to_owned(),
            Ok(Some(other)) => {
                assert!(left.is_empty(), "{left:?}");
                let ImpersonatedUser { user, constraint } = other;
                let extra: String =
                    user.extra.iter().map(|(key, values)| format!(" {key}={}", values.join("+"))).collect();
                format!("{}/{} {}{extra} {constraint}", user.name, user.uid, user.groups.join(" ")).trim().to_owned()
            }
            Err(status) => format!("{} {}", status.code, status.message),
        };
        assert_eq!(told, want, "{headers:?}");
    }
}

const BOB: (&str, &str) = ("impersonate-user", "bob");
const DEVS: (&str, &str) = ("impersonate-group", "devs");

#[tokio::test]
async fn legacy_verb_permits_any_request() {
    let bench = Bench::new(&[
        "impersonate /users/ /bob",
        "impersonate /users/ /system:anonymous",
        "impersonate /users/ /system:node:n1",
        "impersonate /groups/ /devs",
        "impersonate /groups/ /system:authenticated",
        "impersonate /groups/ /system:unauthenticated",
        "impersonate /groups/ /system:masters",
        "impersonate /serviceaccounts/ n/robot",
        "impersonate authentication.k8s.io/uids/ /7",
        "impersonate authentication.k8s.io/userextras/acme.com/a /x",
    ])
    .await;
    let robot = ("impersonate-user", "system:serviceaccount:n:robot");
    for (headers, want) in [
        (&[][..], "nobody"),
        (&[BOB], "bob/ system:authenticated"),
        (&[BOB, DEVS], "bob/ devs system:authenticated"),
        (&[BOB, ("impersonate-group", "system:authenticated")], "bob/ system:authenticated"),
        (&[BOB, ("impersonate-group", "system:unauthenticated")], "bob/ system:unauthenticated"),
        (&[BOB, ("impersonate-group", "system:masters")], "bob/ system:masters system:authenticated"),
        (&[("impersonate-user", "system:anonymous")], "system:anonymous/ system:unauthenticated"),
        (&[("impersonate-user", "system:node:n1")], "system:node:n1/ system:authenticated"),
        (
            &[robot],
            "system:serviceaccount:n:robot/ system:serviceaccounts system:serviceaccounts:n system:authenticated",
        ),
        (&[robot, DEVS], "system:serviceaccount:n:robot/ devs system:authenticated"),
        (&[BOB, ("impersonate-uid", "7")], "bob/7 system:authenticated"),
        (&[BOB, ("impersonate-extra-acme.com%2fa", "x")], "bob/ system:authenticated acme.com/a=x"),
    ] {
        bench.check(headers, want).await;
    }
}

#[tokio::test]
async fn forbidden_impersonation_names_the_missing_right() {
    // Whoever succeeded the old way is told of the old rights.
    let bench = Bench::new(&["impersonate /users/ /bob"]).await;
    bench.check(&[BOB], "bob/ system:authenticated").await;
    let cannot = |what: &str, resource: &str, group: &str| {
        format!(
            "403 {what} is forbidden: User \"alice\" cannot impersonate resource {resource:?} in API group {group:?} at the cluster scope"
        )
    };
    let authentication = "authentication.k8s.io";
    for (headers, want) in [
        (&[("impersonate-user", "eve")][..], cannot("users \"eve\"", "users", "")),
        (&[BOB, DEVS], cannot("groups \"devs\"", "groups", "")),
        (&[BOB, ("impersonate-uid", "7")], cannot("uids.authentication.k8s.io \"7\"", "uids", authentication)),
        (
            &[BOB, ("impersonate-extra-a", "x")],
            cannot("userextras.authentication.k8s.io \"x\"", "userextras/a", authentication),
        ),
        (
            &[("impersonate-user", "system:serviceaccount:n:robot")],
            "403 serviceaccounts \"robot\" is forbidden: User \"alice\" cannot impersonate resource \"serviceaccounts\" in API \
             group \"\" in the namespace \"n\""
                .to_owned(),
        ),
    ] {
        bench.check(headers, &want).await;
    }
    // Others are told of the first right that the narrow way needs.
    let fresh = Bench::new(&[]).await;
    let want = "403 pods is forbidden: User \"alice\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in \
                the namespace \"n\"";
    fresh.check(&[BOB], want).await;
}

#[tokio::test]
async fn headers_without_user_are_rejected() {
    let bench = Bench::new(&[]).await;
    let start = "400 requested &user.DefaultInfo{Name:\"\", UID:";
    let end = "} without impersonating a user name";
    for (headers, want) in [
        (&[DEVS][..], "\"\", Groups:[]string{\"devs\"}, Extra:map[string][]string(nil)"),
        (&[("impersonate-uid", "7")], "\"7\", Groups:[]string(nil), Extra:map[string][]string(nil)"),
        (
            &[("impersonate-extra-a", "x"), ("impersonate-extra-a", "y")],
            "\"\", Groups:[]string(nil), Extra:map[string][]string{\"a\":[]string{\"x\", \"y\"}}",
        ),
        (&[("impersonate-user", ""), DEVS], "\"\", Groups:[]string{\"devs\"}, Extra:map[string][]string(nil)"),
    ] {
        bench.check(headers, &format!("{start}{want}{end}")).await;
    }
    bench.check(&[("impersonate-user", "")], "nobody").await;
}

#[tokio::test]
async fn constrained_modes_require_both_verbs() {
    let on = |mode: &str| format!("impersonate-on:{mode}:list /pods/ n/");
    let be = |mode: &str, what: &str| format!("impersonate:{mode} authentication.k8s.io/{what}");
    let rights = [
        on("user-info"),
        be("user-info", "users/ /bob"),
        be("user-info", "groups/ /devs"),
        on("serviceaccount"),
        be("serviceaccount", "serviceaccounts/ n/robot"),
        on("arbitrary-node"),
        be("arbitrary-node", "nodes/ /n1"),
    ];
    let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
    let bench = Bench::new(&rights).await;
    bench.check(&[BOB], "bob/ system:authenticated impersonate:user-info").await;
    bench.check(&[BOB, DEVS], "bob/ devs system:authenticated impersonate:user-info").await;
    let node = "system:node:n1/ system:nodes system:authenticated impersonate:arbitrary-node";
    bench.check(&[("impersonate-user", "system:node:n1")], node).await;
    let robot = "system:serviceaccount:n:robot/ system:serviceaccounts system:serviceaccounts:n system:authenticated \
                 impersonate:serviceaccount";
    bench.check(&[("impersonate-user", "system:serviceaccount:n:robot")], robot).await;
    let fresh = Bench::new(&rights).await;
    let masters = fresh.resolve(&[BOB, ("impersonate-group", "system:masters")]).await.0.unwrap_err();
    assert!(masters.message.ends_with("impersonating the system:masters group is not allowed"), "{}", masters.message);
    let key = fresh.resolve(&[BOB, ("impersonate-extra-a", "x")]).await.0.unwrap_err();
    assert!(key.message.contains("impersonating an invalid key in extra is not allowed"), "{}", key.message);
    let other = fresh.resolve(&[("impersonate-user", "system:node:n2")]).await.0.unwrap_err();
    assert!(other.message.contains("cannot impersonate:arbitrary-node resource \"nodes\""), "{}", other.message);
}

#[tokio::test]
async fn pod_service_account_impersonates_its_node() {
    let rights = [
        "impersonate-on:associated-node:list /pods/ n/",
        "impersonate:associated-node authentication.k8s.io/nodes/ /*",
    ];
    let mut bench = Bench::new(&rights).await;
    bench.user.name = "system:serviceaccount:n:agent".into();
    let extra = [("authentication.kubernetes.io/node-name".to_owned(), vec!["n1".to_owned()])];
    bench.user.extra = extra.into_iter().collect();
    let own = "system:node:n1/ system:nodes system:authenticated impersonate:associated-node";
    bench.check(&[("impersonate-user", "system:node:n1")], own).await;
    assert!(bench.resolve(&[("impersonate-user", "system:node:n2")]).await.0.is_err());
    bench.user.name = "alice".into();
    assert!(bench.resolve(&[("impersonate-user", "system:node:n1")]).await.0.is_err(), "only accounts have nodes");
}
