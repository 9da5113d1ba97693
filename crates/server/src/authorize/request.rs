//! May whoever sent a request have it answered? What the pipeline asks.

use api::status::Status;
use http::Method;

use super::{Asked, Attributes, Authorizers, Resource, Selectors};
use crate::{
    User,
    request::{Info, Target},
};

impl Authorizers {
    /// Whether `user` may do what a request for a resource says.
    pub async fn check_target(&self, user: &User, target: &Target) -> Result<(), Status> {
        let many = matches!(target.verb, "list" | "watch" | "deletecollection");
        let text = |name: &str| if many { target.query.get(name).unwrap_or_default() } else { "" };
        let (fields, labels) = (text("fieldSelector"), text("labelSelector"));
        let parsed;
        let selectors = if fields.is_empty() && labels.is_empty() {
            Selectors::none()
        } else {
            parsed = Selectors::parse(fields, labels);
            &parsed
        };
        let asked = asked(target, selectors);
        // A method that is no verb: only what is proxied takes it.
        let verb = if target.verb == "options" { "" } else { target.verb };
        self.check(&Attributes { user, verb, asked: Asked::Resource(asked) }).await
    }

    /// Whether `user` may ask for something that is not there.
    pub async fn check_info(&self, user: &User, info: &Info) -> Result<(), Status> {
        let asked = Resource {
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            ..Resource::default()
        };
        self.check(&Attributes { user, verb: info.verb, asked: Asked::Resource(asked) }).await
    }

    /// Whether `user` may use a path that is no resource's.
    pub async fn check_path(&self, user: &User, method: &Method, path: &str) -> Result<(), Status> {
        let verb = lower(method);
        self.check(&Attributes { user, verb: &verb, asked: Asked::Path(path) }).await
    }
}

fn asked<'a>(target: &'a Target, selectors: &'a Selectors) -> Resource<'a> {
    let resource = target.resource;
    let mut asked = Resource {
        group: resource.group,
        version: resource.version,
        resource: resource.name,
        // What is proxied to is the other side's business.
        subresource: target.subresource.split('/').next().unwrap_or_default(),
        namespace: &target.namespace,
        name: &target.name,
        selectors,
    };
    if resource.group.is_empty() && resource.name == "namespaces" {
        // A namespace is within itself: who may do everything in it may read it.
        asked.namespace = &target.name;
    }
    if matches!(target.verb, "list" | "watch") && asked.name.is_empty() {
        asked.name = selectors.field("metadata.name").filter(|name| is_segment(name)).unwrap_or_default();
    }
    asked
}

/// Whether a text can be a name in a path.
fn is_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

fn lower(method: &Method) -> std::borrow::Cow<'static, str> {
    match method.as_str() {
        "GET" => "get".into(),
        "POST" => "post".into(),
        "HEAD" => "head".into(),
        other => other.to_ascii_lowercase().into(),
    }
}
