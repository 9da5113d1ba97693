//! Admission plug-ins at the server's door: what each adds, and what each refuses in which words.

mod always;
mod certificates;
mod conditions;
mod connect;
mod custom;
mod defaults;
mod events;
mod images;
mod limits;
mod namespaces;
mod nodes;
mod options;
mod owners;
mod places;
mod pod_security;
mod policies;
mod quota;
mod rules;
mod running_pods;
mod service_accounts;
mod signers;
mod storage;
mod webhooks;
mod world;
