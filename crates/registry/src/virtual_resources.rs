//! Resources that are computed and not stored: reviews, token requests, component statuses.

use std::{collections::HashMap, sync::Arc};

use api::{schema::Resource, status::Status};
use apiserver_core::{body::RequestBody, request::ResourceRequest};
use async_trait::async_trait;

use crate::{Registry, RequestOutcome};

/// Handles the requests of a resource whose objects are not stored.
#[async_trait]
pub trait VirtualResource: Send + Sync {
    /// Handles a request with every step of the registry but the write to the store.
    async fn handle(
        &self,
        registry: &Registry,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status>;
}

/// A subresource (empty for the resource itself) and its handler.
type SubresourceHandler = (&'static str, Arc<dyn VirtualResource>);

/// The virtual resources of a server.
#[derive(Default)]
pub struct VirtualResources {
    /// By group and resource, with the subresource.
    handlers: HashMap<(&'static str, &'static str), SubresourceHandler>,
}

impl VirtualResources {
    /// Adds the handler of `group`, `resource` and `subresource`.
    pub fn register_handler(
        &mut self,
        group: &'static str,
        resource: &'static str,
        subresource: &'static str,
        handler: Arc<dyn VirtualResource>,
    ) {
        self.handlers.insert((group, resource), (subresource, handler));
    }

    /// The handler of a resource or one of its subresources; `None` if its objects are stored.
    pub fn find_handler<'a>(&'a self, resource: &Resource, subresource: &str) -> Option<&'a Arc<dyn VirtualResource>> {
        let (known, handler) = self.handlers.get(&(resource.group, resource.name))?;
        (*known == subresource && resource.custom_schema.is_none()).then_some(handler)
    }
}
