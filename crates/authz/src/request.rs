//! Authorizes a request, and adds the decision to its audit event.

use api::status::Status;
use apiserver_core::{User, attributes::RequestAttributes, audit};

use crate::{Authorizers, Decision, Reason, forbidden};

impl Authorizers {
    /// Authorizes a request of `user` and annotates its audit event with the decision.
    pub async fn authorize_request(&self, user: &User, request: &RequestAttributes<'_>) -> Result<(), Status> {
        let attributes = request.attributes_for(user);
        let decision = self.authorize(&attributes).await;
        let annotate_decision = |decision: &str, reason: &Reason| {
            audit::annotate("authorization.k8s.io/decision", || decision.to_owned());
            audit::annotate("authorization.k8s.io/reason", || reason.to_string());
        };
        match decision {
            Decision::Allowed(reason) => {
                annotate_decision("allow", &reason);
                Ok(())
            }
            Decision::Denied(reason) | Decision::NoOpinion(reason) => {
                annotate_decision("forbid", &reason);
                Err(forbidden::forbidden_status(&attributes, &reason))
            }
        }
    }
}
