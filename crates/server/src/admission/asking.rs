//! What expressions ask about rights. Authorizers may have to ask others and wait; expressions do not wait. So a question
//! that has no answer yet is noted and answered with no, and what came of that is thrown away: once the questions are
//! answered, the expressions are evaluated again. A question is asked once per request, as upstream remembers its answers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cel::{Authorizer, Check, Decision, Target};

use crate::{
    User,
    authorize::{self, Asked, Authorizers, Selectors, Verdict},
};

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
            Asked::Resource(authorize::Resource {
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
    let verdict = authorizers.decide(&authorize::Attributes { user, verb: &question.verb, asked }).await;
    Decision {
        allowed: matches!(verdict, Verdict::Allowed(_)),
        reason: verdict.reason().to_string(),
        error: verdict.reason().error().map(str::to_owned),
    }
}
