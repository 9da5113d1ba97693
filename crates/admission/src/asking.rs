//! What expressions ask about rights. Authorizers may have to ask others and wait; expressions do not wait. So a question
//! that has no answer yet is noted and answered with no, and what came of that is thrown away: once the questions are
//! answered, the expressions are evaluated again. A question is asked once per request, as upstream remembers its answers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use apiserver_core::{User, attributes::Asked, selectors::Selectors};
use authz::{Authorizers, Verdict};
use cel::{Authorizer, Check, Decision, Target};

/// The questions of one request.
#[derive(Default)]
pub struct Asking {
    questions: Mutex<Vec<Question>>,
}

#[derive(Clone)]
struct Question {
    service_account: Option<(String, String)>,
    target: Target,
    verb: String,
    answer: Option<Decision>,
}

impl Authorizer for Asking {
    fn check(&self, check: &Check<'_>) -> Decision {
        let mut questions = self.lock();
        let same = |question: &&Question| {
            let account =
                question.service_account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
            account == check.service_account && question.target == *check.target && question.verb == check.verb
        };
        if let Some(known) = questions.iter().find(same) {
            return known.answer.clone().unwrap_or_default();
        }
        questions.push(Question {
            service_account: check.service_account.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            target: check.target.clone(),
            verb: check.verb.to_owned(),
            answer: None,
        });
        Decision::default()
    }
}

impl Asking {
    /// Evaluates something, with answers to all that it asks.
    pub async fn evaluate<T>(&self, authorizers: &Authorizers, user: &User, evaluate: impl Fn() -> T) -> T {
        loop {
            let outcome = evaluate();
            let open: Vec<usize> = {
                let questions = self.lock();
                (0..questions.len()).filter(|at| questions[*at].answer.is_none()).collect()
            };
            if open.is_empty() {
                return outcome;
            }
            for at in open {
                let question = self.lock()[at].clone();
                let answer = answer(authorizers, user, &question).await;
                self.lock()[at].answer = Some(answer);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Question>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(authorizers: &Authorizers, user: &User, question: &Question) -> Decision {
    let account;
    let user = match &question.service_account {
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
    let asked = match &question.target {
        Target::Path(path) => Asked::Path(path),
        Target::Resource(target) => {
            selectors = Selectors::parse(&target.field_selector, &target.label_selector);
            Asked::Resource(apiserver_core::attributes::Resource {
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
    let verdict =
        authorizers.decide(&apiserver_core::attributes::Attributes { user, verb: &question.verb, asked }).await;
    Decision {
        allowed: matches!(verdict, Verdict::Allowed(_)),
        reason: verdict.reason().to_string(),
        error: verdict.reason().error().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use apiserver_core::{attributes::Attributes, catalog::BuiltIn};
    use async_trait::async_trait;
    use authz::{Reason, Rules};
    use cel::{Bindings, Budget, Environment, Type, Value};
    use store::{Cache, Embedded, Options, Store, Window};

    use super::*;

    /// Takes its time, and knows one resource.
    struct Slow(Arc<AtomicUsize>);

    #[async_trait]
    impl authz::Authorizer for Slow {
        async fn decide(&self, attributes: &Attributes<'_>) -> Verdict {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            let Asked::Resource(asked) = attributes.asked else { return Verdict::NoOpinion(Reason::failed("no path")) };
            let name = &attributes.user.name;
            let why = format!("{name} {} {} {}", attributes.verb, asked.resource, asked.version);
            if asked.resource == "pods" { Verdict::Allowed(why.into()) } else { Verdict::Denied(why.into()) }
        }

        fn rules(&self, _: &User, _: &str) -> Rules {
            Rules::default()
        }
    }

    /// What an expression evaluates to, and how many questions were asked for it.
    async fn check(source: &str, want: &str, asked: usize) {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path(), Options::default()).await.unwrap());
        let cache = Arc::new(Cache::over(store, Arc::new(BuiltIn), Window::default()).await.unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let authorizers = Authorizers::of(vec![Box::new(Slow(count.clone()))], &cache).unwrap();
        let environment = Environment::new().variable("authorizer", Type::AUTHORIZER);
        let program = environment.compile(source).unwrap().program().unwrap();
        let asking = Arc::new(Asking::default());
        let user = User { name: "joe".into(), ..User::default() };
        let evaluate = || {
            let mut bindings = Bindings::new();
            bindings.set(0, Value::authorizer(asking.clone()));
            format!("{:?}", program.run(&bindings, &mut Budget::new(2_000_000)))
        };
        let outcome = asking.evaluate(&authorizers, &user, evaluate).await;
        assert_eq!((outcome.as_str(), count.load(Ordering::Relaxed)), (want, asked), "{source}");
    }

    #[tokio::test]
    async fn expressions_do_not_wait_but_get_answers() {
        let of = |resource: &str| format!("authorizer.group('').resource('{resource}').check('get')");
        let (pods, nodes) = (of("pods"), of("nodes"));
        check("1 == 1", "Ok(Bool(true))", 0).await;
        check(&format!("{pods}.allowed()"), "Ok(Bool(true))", 1).await;
        check(&format!("{pods}.allowed() && {pods}.allowed()"), "Ok(Bool(true))", 1).await;
        check(&format!("{nodes}.allowed() || {pods}.allowed()"), "Ok(Bool(true))", 2).await;
        check(&format!("{pods}.allowed() && {nodes}.allowed()"), "Ok(Bool(false))", 2).await;
        check(&format!("{pods}.allowed() ? {nodes}.reason() : ''"), "Ok(String(\"joe get nodes *\"))", 2).await;
        let account = "authorizer.serviceAccount('a', 'b').group('').resource('pods').check('get').reason()";
        check(account, "Ok(String(\"system:serviceaccount:a:b get pods *\"))", 1).await;
        check("authorizer.path('/x').check('get').error()", "Ok(String(\"no path\"))", 1).await;
        check("authorizer.path('/x').check('get').allowed()", "Ok(Bool(false))", 1).await;
    }
}
