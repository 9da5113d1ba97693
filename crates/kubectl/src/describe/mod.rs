//! `kubectl describe`: texts about objects, with a describer per kind and a general one for all others.

mod address;
mod autoscaling;
mod config_kinds;
mod container;
mod description;
mod event_list;
mod generic;
mod network;
mod node;
mod pod;
mod policy;
mod service;
mod storage;
mod template;
mod volume;
mod workload;

use api::Value;

pub use description::Description;
pub use event_list::{event_age as event_interval, find_events, push_events, sort_events};
pub use policy::policy_rows;
pub use template::describe_template;

use crate::{errors::CommandResult, object::ObjectFields, resource::ResourceInfo, session::Session};

/// Inputs of a describer.
pub struct DescribeContext<'a> {
    /// The running command.
    pub session: &'a Session,
    /// Whether events are shown.
    pub show_events: bool,
}

impl DescribeContext<'_> {
    /// Lists the objects that labels choose, at once.
    pub fn list(&self, path: &str, selector: &str) -> Vec<Value> {
        self.list_pages(path, "labelSelector", selector, 0)
    }

    /// Lists the objects that a selector chooses, in chunks; an error is an empty list, as in upstream's describers.
    pub fn list_in_chunks(&self, path: &str, selector: &str, value: &str) -> Vec<Value> {
        let limit = if self.session.flags.has("chunk-size") { self.session.flags.int("chunk-size") } else { 500 };
        self.list_pages(path, selector, value, limit)
    }

    fn list_pages(&self, path: &str, selector: &str, value: &str, limit: i64) -> Vec<Value> {
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let mut request = crate::rest::RestRequest::get(path).with_optional("continue", &next);
            if !selector.is_empty() {
                request = request.with_optional(selector, value);
            }
            if limit > 0 {
                request = request.with_query("limit", limit.to_string());
            }
            let Ok(mut list) = self.session.client().and_then(|client| client.send_json(request)) else {
                return Vec::new();
            };
            if let Some(Value::Array(chunk)) = list.get_mut("items").map(Value::take) {
                items.extend(chunk);
            }
            match list.text("metadata.continue") {
                "" => return items,
                token if token == next => return items,
                token => next = token.to_owned(),
            }
        }
    }

    /// Reads an object.
    pub fn get(&self, path: &str) -> CommandResult<Value> {
        self.session.client()?.send_json(crate::rest::RestRequest::get(path))
    }

    /// Adds the events of an object.
    pub fn events(&self, out: &mut Description, object: &Value) {
        if self.show_events {
            push_events(out, &find_events(self.session, object));
        }
    }
}

/// Describes an object.
pub fn describe_object(context: &DescribeContext, info: &ResourceInfo) -> CommandResult<String> {
    let object = &info.object;
    let mut out = Description::default();
    let group = info.mapping.group.as_str();
    match (group, info.mapping.kind.as_str()) {
        ("", "Pod") => pod::describe_pod(context, &mut out, object),
        ("", "Node") => node::describe_node(context, &mut out, object),
        ("", "Service") => service::describe_service(context, &mut out, object),
        ("", "ConfigMap") => config_kinds::config_map(context, &mut out, object),
        ("", "Secret") => config_kinds::secret(&mut out, object),
        ("", "ServiceAccount") => config_kinds::service_account(context, &mut out, object),
        ("", "ResourceQuota") => config_kinds::resource_quota(&mut out, object),
        ("", "LimitRange") => config_kinds::limit_range(&mut out, object),
        ("", "Namespace") => config_kinds::namespace(context, &mut out, object),
        ("", "Endpoints") => network::endpoints(context, &mut out, object),
        ("", "PersistentVolumeClaim") => storage::claim(context, &mut out, object),
        ("", "PersistentVolume") => storage::volume(context, &mut out, object),
        ("", "ReplicationController") => workload::replication_controller(context, &mut out, object),
        ("apps", "Deployment") => workload::deployment(context, &mut out, object),
        ("apps", "ReplicaSet") => workload::replica_set(context, &mut out, object),
        ("apps", "StatefulSet") => workload::stateful_set(context, &mut out, object),
        ("apps", "DaemonSet") => workload::daemon_set(context, &mut out, object),
        ("batch", "Job") => workload::job(context, &mut out, object),
        ("batch", "CronJob") => workload::cron_job(context, &mut out, object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(context, &mut out, object),
        ("policy", "PodDisruptionBudget") => policy::disruption_budget(context, &mut out, object),
        ("networking.k8s.io", "Ingress") => network::ingress(context, &mut out, object),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(context, &mut out, object),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(&mut out, object),
        ("networking.k8s.io", "IPAddress") => address::ip_address(context, &mut out, object),
        ("networking.k8s.io", "ServiceCIDR") => address::service_cidr(context, &mut out, object),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(context, &mut out, object),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(context, &mut out, object),
        ("storage.k8s.io", "VolumeAttributesClass") => storage::attributes_class(context, &mut out, object),
        ("storage.k8s.io", "CSINode") => storage::csi_node(context, &mut out, object),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => policy::role(&mut out, object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => policy::role_binding(&mut out, object),
        ("scheduling.k8s.io", "PriorityClass") => policy::priority_class(context, &mut out, object),
        ("certificates.k8s.io", "CertificateSigningRequest") => policy::signing_request(context, &mut out, object),
        _ => generic::describe_generic(context, &mut out, object),
    }
    Ok(out.finish())
}
