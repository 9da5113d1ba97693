//! Matches requests against the rules and selectors of webhooks and policies.

use api::{
    Value, meta,
    schema::{Resource, ResourceRef, schema},
    selector::{LabelSelector, SelectorError},
    status::Status,
};
use apiserver_core::loopback;

use super::{AdmissionAttributes, Operation};

/// A matched request: the resource, in the version that the matching rule names.
#[derive(Clone)]
pub struct Invocation {
    /// The matched resource; with `matchPolicy: Equivalent` its version may differ from the request's.
    pub resource: ResourceRef,
}

/// Match criteria of a webhook or policy: rules and selectors.
pub struct MatchCriteria<'a> {
    /// Resource rules; `None` matches every resource.
    pub rules: Option<&'a [Value]>,
    /// Exclude rules, which take precedence over `rules`.
    pub exclude_rules: &'a [Value],
    /// Whether rules also match equivalent versions (`matchPolicy: Equivalent`).
    pub equivalent: bool,
    /// The namespace selector.
    pub namespace_selector: &'a Result<LabelSelector, SelectorError>,
    /// The object selector.
    pub object_selector: &'a Result<LabelSelector, SelectorError>,
}

impl MatchCriteria<'_> {
    /// Matches a request; `None` if the criteria do not select it.
    pub async fn match_request(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<Option<Invocation>, Status> {
        if self.match_rules(self.exclude_rules, attributes, object).is_some() {
            return Ok(None);
        }
        let own = Invocation { resource: attributes.target.resource.clone() };
        let found = self.rules.map_or(Some(own), |rules| self.match_rules(rules, attributes, object));
        let Some(invocation) = found else { return Ok(None) };
        let objects = self.object_selector.as_ref().map_err(Status::internal_error)?;
        if !objects.is_empty() && !selector_matches(objects, attributes, object) {
            return Ok(None);
        }
        let namespaces = self.namespace_selector.as_ref().map_err(Status::internal_error)?;
        if !namespaces.is_empty() && !namespaces.matches(&namespace_labels(attributes, object).await?) {
            // Namespace selectors do not apply to cluster-scoped objects.
            let free = request_namespace(attributes, object).is_empty();
            return Ok(free.then_some(invocation));
        }
        Ok(Some(invocation))
    }

    /// Finds the request's resource, or an equivalent version of it, in the rules.
    fn match_rules(&self, rules: &[Value], attributes: &AdmissionAttributes<'_>, object: &Value) -> Option<Invocation> {
        let own = attributes.resource();
        let named = |resource: &Resource| rules.iter().any(|rule| rule_matches(rule, attributes, object, resource));
        if named(own) {
            return Some(Invocation { resource: attributes.target.resource.clone() });
        }
        if !self.equivalent {
            return None;
        }
        let other = |other: &Resource| {
            other.storage_resource() == own.storage_resource()
                && (other.group, other.version) != (own.group, own.version)
                && named(other)
        };
        if own.custom_schema.is_none() {
            let found = schema().resources().iter().find(|resource| other(resource))?;
            return Some(Invocation { resource: found.into() });
        }
        let mut versions = attributes.registry.custom_resources().served_versions(own.group, own.name).into_iter();
        versions.find(|descriptor| other(descriptor)).map(|resource| Invocation { resource })
    }
}

/// The namespace of a request; for a namespace, its own name.
pub fn request_namespace<'a>(attributes: &'a AdmissionAttributes<'_>, object: &'a Value) -> &'a str {
    if attributes.targets_resource("", "namespaces") { attributes.object_name(object) } else { attributes.namespace() }
}

fn rule_matches(rule: &Value, attributes: &AdmissionAttributes<'_>, object: &Value, resource: &Resource) -> bool {
    let among = |field: &str, wanted: &str| {
        meta::list_at(rule, &[field]).iter().filter_map(Value::as_str).any(|item| item == "*" || item == wanted)
    };
    let namespaced =
        !attributes.targets_resource("", "namespaces") && !request_namespace(attributes, object).is_empty();
    let scope = match meta::string_at(rule, &["scope"]) {
        "Namespaced" => namespaced,
        "Cluster" => !namespaced,
        _ => true,
    };
    let named = meta::list_at(rule, &["resources"]).iter().filter_map(Value::as_str).any(|item| {
        let (name, subresource) = item.split_once('/').unwrap_or((item, ""));
        (name == "*" || name == resource.name) && (subresource == "*" || subresource == attributes.subresource())
    });
    let by_name = || {
        let names = meta::list_at(rule, &["resourceNames"]);
        names.is_empty() || names.iter().any(|name| name == attributes.object_name(object))
    };
    scope
        && among("operations", attributes.operation.name())
        && among("apiGroups", resource.group)
        && among("apiVersions", resource.version)
        && named
        && by_name()
}

/// Whether the selector matches the labels of the new or the old object.
fn selector_matches(selector: &LabelSelector, attributes: &AdmissionAttributes<'_>, object: &Value) -> bool {
    let labelled = |object: &Value| {
        meta::value_at(object, &["metadata"]).is_some() && selector.matches(&object["metadata"]["labels"])
    };
    labelled(object) || attributes.old.is_some_and(labelled)
}

async fn namespace_labels(attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<Value, Status> {
    let written = matches!(attributes.operation, Operation::Create | Operation::Update);
    if attributes.targets_resource("", "namespaces") && attributes.subresource().is_empty() && written {
        return Ok(object["metadata"]["labels"].clone());
    }
    let name = request_namespace(attributes, object);
    if name.is_empty() {
        return Ok(Value::Null);
    }
    let namespaces = loopback::find_resource("", "v1", "namespaces")?;
    let (found, _) = attributes.registry.read_object(namespaces, "", name).await?;
    Ok(found["metadata"]["labels"].clone())
}
