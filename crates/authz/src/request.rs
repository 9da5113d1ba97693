//! Authorizes a request, and adds the decision to its audit event.

use api::status::Status;
use apiserver_core::{User, attributes::Question, audit};

use crate::{Authorizers, Reason, Verdict, refuse};

impl Authorizers {
    /// Whether `user` may have a question answered; the audit log is told.
    pub async fn answer(&self, user: &User, question: &Question<'_>) -> Result<(), Status> {
        let attributes = question.about(user);
        let verdict = self.decide(&attributes).await;
        let note = |decision: &str, reason: &Reason| {
            audit::annotate("authorization.k8s.io/decision", || decision.to_owned());
            audit::annotate("authorization.k8s.io/reason", || reason.to_string());
        };
        match verdict {
            Verdict::Allowed(reason) => {
                note("allow", &reason);
                Ok(())
            }
            Verdict::Denied(reason) | Verdict::NoOpinion(reason) => {
                note("forbid", &reason);
                Err(refuse::status(&attributes, &reason))
            }
        }
    }
}
