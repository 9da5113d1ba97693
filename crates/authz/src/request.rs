//! Authorizes a request, and adds the decision to its audit event.

use api::status::Status;
use apiserver_core::{User, attributes::RequestAttributes, audit};

use crate::{Authorizers, Decision, Reason, forbidden};

impl Authorizers {
    /// Whether `user` may have a question answered; the audit log is told.
    pub async fn authorize_request(&self, user: &User, question: &RequestAttributes<'_>) -> Result<(), Status> {
        let attributes = question.attributes_for(user);
        let verdict = self.authorize(&attributes).await;
        let note = |decision: &str, reason: &Reason| {
            audit::annotate("authorization.k8s.io/decision", || decision.to_owned());
            audit::annotate("authorization.k8s.io/reason", || reason.to_string());
        };
        match verdict {
            Decision::Allowed(reason) => {
                note("allow", &reason);
                Ok(())
            }
            Decision::Denied(reason) | Decision::NoOpinion(reason) => {
                note("forbid", &reason);
                Err(forbidden::status(&attributes, &reason))
            }
        }
    }
}
