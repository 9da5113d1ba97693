//! What an API server's refusal means to a loop: told by the status code and reason, never by text.

/// Questions that every loop asks about a failed request.
pub trait ApiErrorExt {
    /// The object does not exist.
    fn is_not_found(&self) -> bool;
    /// The object changed since it was read, or a precondition does not hold.
    fn is_conflict(&self) -> bool;
    /// An object of that name exists.
    fn is_already_exists(&self) -> bool;
    /// The namespace is being deleted: nothing can be created in it any more.
    fn is_namespace_terminating(&self) -> bool;
    /// The server gave up waiting: an object that was to be created is there, but not yet as others will see it.
    fn is_timeout(&self) -> bool;
    /// The server found the object not valid, so sending it again does not help.
    fn is_invalid(&self) -> bool;
    /// What the server said, without the wrapping of the client.
    fn reply(&self) -> String;
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

    fn reply(&self) -> String {
        match self {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        }
    }
}
