//! Resolves the parameters of a policy binding (`paramRef`): objects of the policy's `paramKind`, by name or label
//! selector.

use api::{
    Value, meta,
    schema::{Resource, ResourceRef, schema},
    selector::LabelSelector,
};

use crate::{AdmissionAttributes, error::DenialReason};

/// The `paramKind` of a policy.
#[derive(Debug)]
pub struct ParamKind {
    /// API group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl ParamKind {
    /// Parses the `paramKind` of a policy, if it has one.
    pub fn from_policy(policy: &Value) -> Option<Self> {
        let kind = meta::value_at(policy, &["spec", "paramKind"])?;
        let text = |field: &str| meta::string_at(kind, &[field]).to_owned();
        Some(Self { api_version: text("apiVersion"), kind: text("kind") })
    }

    /// Finds the resource of the kind.
    pub fn find_resource(&self, attributes: &AdmissionAttributes<'_>) -> Result<ResourceRef, DenialReason> {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let built_in = schema().resource_of_kind(group, version, &self.kind).map(ResourceRef::BuiltIn);
        let custom = || attributes.registry.custom_resources().find_kind(group, version, &self.kind);
        built_in.or_else(custom).ok_or_else(|| {
            format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={}'", self.kind).into()
        })
    }
}

/// Reads the parameter objects of a binding, each evaluated separately; null for a policy without `paramKind`.
pub async fn collect_params(
    resource: Option<&Resource>,
    reference: Option<&Value>,
    attributes: &AdmissionAttributes<'_>,
) -> Result<Vec<Value>, DenialReason> {
    let (Some(resource), Some(reference)) = (resource, reference) else { return Ok(vec![Value::Null]) };
    let namespace = param_namespace(resource, reference, attributes)?;
    let params = match (meta::string_at(reference, &["name"]), meta::value_at(reference, &["selector"])) {
        ("", None) => return Err("one of name or selector must be provided".into()),
        ("", Some(selector)) => {
            let selector = LabelSelector::from_object(selector).map_err(|error| error.to_string())?;
            let all = attributes.registry.list_objects(resource, namespace).await.map_err(|status| status.message)?;
            all.into_iter().filter(|object| selector.matches(&object["metadata"]["labels"])).collect()
        }
        (name, _) => match attributes.registry.read_object(resource, namespace, name).await {
            Ok((object, _)) => vec![object],
            Err(status) if status.is_not_found() => Vec::new(),
            Err(status) => return Err(status.message.into()),
        },
    };
    if params.is_empty() && meta::string_at(reference, &["parameterNotFoundAction"]) == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(params)
}

/// The namespace of the parameters: that of the `paramRef`, or else of the request.
fn param_namespace<'a>(
    resource: &Resource,
    reference: &'a Value,
    attributes: &'a AdmissionAttributes<'_>,
) -> Result<&'a str, DenialReason> {
    let configured = meta::string_at(reference, &["namespace"]);
    match (resource.is_namespaced(), configured, attributes.namespace()) {
        (false, "", _) => Ok(""),
        (false, ..) => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()),
        (true, "", "") => {
            Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into())
        }
        (true, "", own) => Ok(own),
        (true, configured, _) => Ok(configured),
    }
}
