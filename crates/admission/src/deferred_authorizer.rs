//! Authorization checks of CEL expressions (`authorizer.…check()`), resolved between evaluations.

use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    deferred::DeferredLookups,
    selectors::RequestSelectors,
};
use authz::{Authorizers, Decision};
use cel::{AuthorizationCheck, Authorizer, CheckTarget};

/// The authorizer of the expressions of one request.
#[derive(Default)]
pub struct DeferredAuthorizer {
    checks: DeferredLookups<RecordedCheck, cel::AuthorizationDecision>,
}

/// One check: as the requesting user, or as a service account.
#[derive(Clone, Debug)]
struct RecordedCheck {
    service_account: Option<(String, String)>,
    target: CheckTarget,
    verb: String,
}

impl Authorizer for DeferredAuthorizer {
    fn authorize_check(&self, check: &AuthorizationCheck<'_>) -> cel::AuthorizationDecision {
        let is_same = |known: &RecordedCheck| {
            let account = known.service_account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
            account == check.service_account && known.target == *check.target && known.verb == check.verb
        };
        let owned = || RecordedCheck {
            service_account: check.service_account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            target: check.target.clone(),
            verb: check.verb.to_owned(),
        };
        self.checks.get_or_record(is_same, owned).unwrap_or_default()
    }
}

impl DeferredAuthorizer {
    /// Evaluates expressions until the decisions of all their checks are known.
    pub async fn evaluate<T>(&self, authorizers: &Authorizers, user: &User, evaluate: impl Fn() -> T) -> T {
        loop {
            let outcome = evaluate();
            let checks = self.checks.unresolved();
            if checks.is_empty() {
                return outcome;
            }
            let mut decisions = Vec::with_capacity(checks.len());
            for check in &checks {
                decisions.push(authorize_check(authorizers, user, check).await);
            }
            self.checks.resolve(decisions);
        }
    }
}

async fn authorize_check(authorizers: &Authorizers, user: &User, check: &RecordedCheck) -> cel::AuthorizationDecision {
    let account;
    let user = match &check.service_account {
        None => user,
        Some((namespace, name)) => {
            account = User {
                name: format!("system:serviceaccount:{namespace}:{name}"),
                groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")],
                ..User::default()
            };
            &account
        }
    };
    let selectors;
    let target = match &check.target {
        CheckTarget::Path(path) => AttributesTarget::NonResource(path),
        CheckTarget::Resource(target) => {
            selectors = RequestSelectors::parse(&target.field_selector, &target.label_selector);
            AttributesTarget::Resource(ResourceAttributes {
                group: &target.group,
                version: "*",
                resource: &target.resource,
                subresource: &target.subresource,
                namespace: &target.namespace,
                name: &target.name,
                selectors: &selectors,
            })
        }
    };
    let decision = authorizers.authorize(&Attributes { user, verb: &check.verb, target }).await;
    cel::AuthorizationDecision {
        allowed: matches!(decision, Decision::Allowed(_)),
        reason: decision.reason().to_string(),
        error: decision.reason().error().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use apiserver_core::{attributes::Attributes, catalog::BuiltInCatalog};
    use async_trait::async_trait;
    use authz::{Reason, ResolvedRules};
    use cel::{Activation, CostTracker, Environment, Type, Value};
    use store::{EmbeddedOptions, EmbeddedStore, HistoryWindow, Store, WatchCache};

    use super::*;

    /// An authorizer that yields before it decides and allows one resource.
    struct Slow(Arc<AtomicUsize>);

    #[async_trait]
    impl authz::Authorizer for Slow {
        async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            let AttributesTarget::Resource(requested) = attributes.target else {
                return Decision::NoOpinion(Reason::from_error("no path"));
            };
            let name = &attributes.user.name;
            let why = format!("{name} {} {} {}", attributes.verb, requested.resource, requested.version);
            if requested.resource == "pods" { Decision::Allowed(why.into()) } else { Decision::Denied(why.into()) }
        }

        fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
            ResolvedRules::default()
        }
    }

    /// Asserts the result of an expression and the number of authorization checks it makes.
    async fn check_expression(source: &str, want: &str, requested: usize) {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.unwrap());
        let cache =
            Arc::new(WatchCache::with_engine(store, Arc::new(BuiltInCatalog), HistoryWindow::default()).await.unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let authorizers = Authorizers::with_authorizers(vec![Box::new(Slow(count.clone()))], &cache).unwrap();
        let environment = Environment::new().with_variable("authorizer", Type::AUTHORIZER);
        let program = environment.compile(source).unwrap().plan_program().unwrap();
        let authorizer = Arc::new(DeferredAuthorizer::default());
        let user = User { name: "joe".into(), ..User::default() };
        let evaluate = || {
            let mut bindings = Activation::new();
            bindings.bind_value(0, Value::from_authorizer(authorizer.clone()));
            format!("{:?}", program.run(&bindings, &mut CostTracker::new(2_000_000)))
        };
        let outcome = authorizer.evaluate(&authorizers, &user, evaluate).await;
        assert_eq!((outcome.as_str(), count.load(Ordering::Relaxed)), (want, requested), "{source}");
    }

    #[tokio::test]
    async fn expression_is_evaluated_again_once_checks_are_decided() {
        let of = |resource: &str| format!("authorizer.group('').resource('{resource}').check('get')");
        let (pods, nodes) = (of("pods"), of("nodes"));
        check_expression("1 == 1", "Ok(Bool(true))", 0).await;
        check_expression(&format!("{pods}.allowed()"), "Ok(Bool(true))", 1).await;
        check_expression(&format!("{pods}.allowed() && {pods}.allowed()"), "Ok(Bool(true))", 1).await;
        check_expression(&format!("{nodes}.allowed() || {pods}.allowed()"), "Ok(Bool(true))", 2).await;
        check_expression(&format!("{pods}.allowed() && {nodes}.allowed()"), "Ok(Bool(false))", 2).await;
        check_expression(&format!("{pods}.allowed() ? {nodes}.reason() : ''"), "Ok(String(\"joe get nodes *\"))", 2)
            .await;
        let account = "authorizer.serviceAccount('a', 'b').group('').resource('pods').check('get').reason()";
        check_expression(account, "Ok(String(\"system:serviceaccount:a:b get pods *\"))", 1).await;
        check_expression("authorizer.path('/x').check('get').error()", "Ok(String(\"no path\"))", 1).await;
        check_expression("authorizer.path('/x').check('get').allowed()", "Ok(Bool(false))", 1).await;
    }
}
