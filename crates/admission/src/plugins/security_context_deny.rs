//! SecurityContextDeny: rejects pods that set SELinux options, users or groups in a security context.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, pod};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "SecurityContextDeny",
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "pods", Operation::WRITES)],
    construct: |_| Ok(Box::new(SecurityContextDeny)),
};

struct SecurityContextDeny;

#[async_trait]
impl Plugin for SecurityContextDeny {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let whole = ["supplementalGroups", "seLinuxOptions", "runAsUser", "fsGroup"];
        let refuse = |field: &str| Err(attributes.new_forbidden(object, format!("{field} is forbidden")));
        if let Some(field) =
            whole.iter().find(|field| is_set(meta::value_at(object, &["spec", "securityContext", field])))
        {
            return refuse(&format!("pod.Spec.SecurityContext.{}", go_field_name(field)));
        }
        for container in pod::containers(object) {
            let set = |field: &&&str| is_set(meta::value_at(container, &["securityContext", field]));
            if let Some(field) = ["seLinuxOptions", "runAsUser"].iter().find(set) {
                return refuse(&format!("SecurityContext.{}", go_field_name(field)));
            }
        }
        Ok(())
    }
}

fn is_set(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value.as_array().is_none_or(|list| !list.is_empty()))
}

/// Returns the name of the field in Go.
fn go_field_name(field: &str) -> String {
    match field {
        "seLinuxOptions" => "SELinuxOptions".to_owned(),
        "fsGroup" => "FSGroup".to_owned(),
        field => field[..1].to_ascii_uppercase() + &field[1..],
    }
}
