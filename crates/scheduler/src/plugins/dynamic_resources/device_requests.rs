//! The requests of claims in the form that the search reads.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClass, DeviceSelector, DeviceToleration, ResourceClaim,
};

/// Why devices could not be allocated.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// The search took too long.
    #[error("timed out trying to allocate devices")]
    Timeout,
    /// The node cannot be used now.
    #[error("{0}")]
    Unavailable(&'static str),
    /// The claim or the devices are invalid.
    #[error("{0}")]
    Invalid(String),
}

/// Finds a device class by name.
pub type ClassLookup = Box<dyn Fn(&str) -> Option<Arc<DeviceClass>> + Send + Sync>;

/// The number of devices that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCount {
    /// So many.
    Exactly(usize),
    /// All that match.
    All,
}

/// One request, or one choice of a request with several.
pub struct RequestView {
    /// `request` or `request/choice`.
    pub name: String,
    /// The class of the devices.
    pub class: Arc<DeviceClass>,
    /// CEL selectors beside those of the class.
    pub selectors: Option<Vec<DeviceSelector>>,
    /// The number of devices.
    pub count: DeviceCount,
    /// Whether devices in use are taken too.
    pub is_admin: bool,
    /// Tolerated taints.
    pub tolerations: Option<Vec<DeviceToleration>>,
    /// Demands on consumable capacity.
    pub capacity: Option<CapacityRequirements>,
}

impl RequestView {
    /// The name of the request or of the choice alone.
    pub fn own_name(&self) -> &str {
        self.name.split_once('/').map_or(self.name.as_str(), |(_, choice)| choice)
    }
}

/// A request of a claim with its choices, the preferred first.
pub struct ClaimRequest {
    /// The choices; one if the request is for devices of one kind.
    pub choices: Vec<Arc<RequestView>>,
}

/// A claim to allocate, with its requests.
pub struct ClaimRequests {
    /// The claim.
    pub claim: Arc<ResourceClaim>,
    /// The requests.
    pub requests: Vec<ClaimRequest>,
}

impl ClaimRequests {
    /// Reads the requests of a claim.
    pub fn new(claim: Arc<ResourceClaim>, classes: &ClassLookup) -> Result<Self, AllocationError> {
        Ok(Self { requests: requests_of(&claim, classes)?, claim })
    }
}

/// `namespace/name` of a claim.
pub fn claim_key(claim: &ResourceClaim) -> String {
    let meta = &claim.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or(""))
}

fn requests_of(claim: &ResourceClaim, classes: &ClassLookup) -> Result<Vec<ClaimRequest>, AllocationError> {
    let claim_name = claim_key(claim);
    let class_of = |name: &str, request: &str| {
        classes(name).ok_or_else(|| {
            AllocationError::Invalid(format!(
                "claim {claim_name}, request {request}: could not retrieve device class {name}: \
                 deviceclass.resource.k8s.io {name:?} not found"
            ))
        })
    };
    let count = |mode: Option<&String>, count: Option<i64>| match mode.map(String::as_str) {
        Some("All") => DeviceCount::All,
        _ => DeviceCount::Exactly(usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX)),
    };
    let mut requests = Vec::new();
    for request in claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
        let mut choices = Vec::new();
        if let Some(exact) = &request.exactly {
            choices.push(RequestView {
                name: request.name.clone(),
                class: class_of(&exact.device_class_name, &request.name)?,
                selectors: exact.selectors.clone(),
                count: count(exact.allocation_mode.as_ref(), exact.count),
                is_admin: exact.admin_access == Some(true),
                tolerations: exact.tolerations.clone(),
                capacity: exact.capacity.clone(),
            });
        }
        for choice in request.first_available.iter().flatten() {
            choices.push(RequestView {
                class: class_of(&choice.device_class_name, &choice.name)?,
                name: format!("{}/{}", request.name, choice.name),
                selectors: choice.selectors.clone(),
                count: count(choice.allocation_mode.as_ref(), choice.count),
                is_admin: false,
                tolerations: choice.tolerations.clone(),
                capacity: choice.capacity.clone(),
            });
        }
        requests.push(ClaimRequest { choices: choices.into_iter().map(Arc::new).collect() });
    }
    Ok(requests)
}
