//! Admission plug-ins at the server's door: what each adds, and what each refuses in which words.

mod fixture;

#[path = "admission/certificates.rs"]
mod certificates;
#[path = "admission/defaults.rs"]
mod defaults;
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
#[path = "admission/pod_security.rs"]
mod pod_security;
#[path = "admission/quota.rs"]
mod quota;
#[path = "admission/running_pods.rs"]
mod running_pods;
#[path = "admission/service_accounts.rs"]
mod service_accounts;
#[path = "admission/webhooks.rs"]
mod webhooks;
#[path = "admission/world.rs"]
mod world;
