//! Admission plug-ins at the server's door: what each adds, and what each refuses in which words.

mod fixture;

#[path = "admission/always.rs"]
mod always;
#[path = "admission/certificates.rs"]
mod certificates;
#[path = "admission/conditions.rs"]
mod conditions;
#[path = "admission/connect.rs"]
mod connect;
#[path = "admission/custom.rs"]
mod custom;
#[path = "admission/defaults.rs"]
mod defaults;
#[path = "admission/events.rs"]
mod events;
#[path = "admission/images.rs"]
mod images;
#[path = "admission/limits.rs"]
mod limits;
#[path = "admission/namespaces.rs"]
mod namespaces;
#[path = "admission/nodes.rs"]
mod nodes;
#[path = "admission/options.rs"]
mod options;
#[path = "admission/owners.rs"]
mod owners;
#[path = "admission/places.rs"]
mod places;
#[path = "admission/pod_security.rs"]
mod pod_security;
#[path = "admission/policies.rs"]
mod policies;
#[path = "admission/quota.rs"]
mod quota;
#[path = "admission/rules.rs"]
mod rules;
#[path = "admission/running_pods.rs"]
mod running_pods;
#[path = "admission/service_accounts.rs"]
mod service_accounts;
#[path = "admission/signers.rs"]
mod signers;
#[path = "admission/storage.rs"]
mod storage;
#[path = "admission/webhooks.rs"]
mod webhooks;
#[path = "admission/world.rs"]
mod world;
