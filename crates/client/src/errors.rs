//! Classifies API errors by status code and reason, never by message text.

use crate::leader_fence::NotLeaderError;

/// Predicates that controllers use on a failed request.
pub trait ApiErrorExt {
    /// The object does not exist.
    fn is_not_found(&self) -> bool;
    /// The object changed since it was read, or a precondition does not hold.
    fn is_conflict(&self) -> bool;
    /// An object of that name exists.
    fn is_already_exists(&self) -> bool;
    /// The namespace is being deleted and accepts no new objects.
    fn is_namespace_terminating(&self) -> bool;
    /// The server timed out; a create may have succeeded without being visible yet.
    fn is_timeout(&self) -> bool;
    /// The object failed validation; sending it again unchanged fails again.
    fn is_invalid(&self) -> bool;
    /// This candidate does not hold its lease; the write was not sent.
    fn is_not_leader(&self) -> bool;
    /// The message of the returned `Status`, without the client's prefix.
    fn server_message(&self) -> String;
}

impl ApiErrorExt for kube::Error {
    fn is_not_found(&self) -> bool {
        matches!(self, kube::Error::Api(status) if status.code == 404)
    }

    fn is_conflict(&self) -> bool {
        matches!(self, kube::Error::Api(status) if status.code == 409 && status.reason != "AlreadyExists")
    }

    fn is_already_exists(&self) -> bool {
        matches!(self, kube::Error::Api(status) if status.reason == "AlreadyExists")
    }

    fn is_namespace_terminating(&self) -> bool {
        let kube::Error::Api(status) = self else { return false };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    fn is_timeout(&self) -> bool {
        matches!(self, kube::Error::Api(status) if status.reason == "Timeout")
    }

    fn is_invalid(&self) -> bool {
        matches!(self, kube::Error::Api(status) if status.code == 422)
    }

    fn is_not_leader(&self) -> bool {
        matches!(self, kube::Error::Service(error) if error.is::<NotLeaderError>())
    }

    fn server_message(&self) -> String {
        match self {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        }
    }
}
