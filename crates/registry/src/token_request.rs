//! `serviceaccounts/<name>/token`: a token of the account, bound to a pod, a secret or a node if the request says so.

use std::sync::Arc;

use admission::AdmissionAttributes;
use api::{
    Value, apply, meta,
    status::Status,
    validate::{self, FieldError},
};
use apiserver_core::{body::RequestBody, clock, loopback, request::ResourceRequest};
use async_trait::async_trait;
use authn::tokens::Tokens;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{Outcome, Registry, VirtualResource, WriteOptions, kind_of, posted};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// What kubelets ask for when a pod does not say. Such a token lives longer, for clients that never read it again …
const RENEWED: i64 = 60 * 60 + 7;
/// … this long, and those that use it longer than asked for are noticed.
const EXTENDED: i64 = 365 * 24 * 60 * 60;

/// Answers requests for tokens.
pub struct TokenRequests {
    /// Signs tokens; without, there are none.
    pub tokens: Option<Arc<Tokens>>,
}

#[async_trait]
impl VirtualResource for TokenRequests {
    async fn handle(
        &self,
        registry: &Registry,
        target: &ResourceRequest,
        input: &RequestBody,
    ) -> Result<Outcome, Status> {
        let tokens = self.tokens.as_deref().filter(|tokens| tokens.can_sign());
        // Without a key there are no tokens, and no such path.
        let object = answer(registry, tokens.ok_or_else(Status::no_such_path)?, target, input).await?;
        Ok(Outcome::Object { object, stored: None, code: 201 })
    }
}

/// A token, with warnings.
async fn answer(
    registry: &Registry,
    tokens: &Tokens,
    target: &ResourceRequest,
    input: &RequestBody,
) -> Result<Value, Status> {
    let options = WriteOptions::of(target, input)?;
    let mut request = posted(target, input, options.validation)?;
    own(&options, target, &mut request)?;
    let attributes = AdmissionAttributes::create(registry, target, options.dry_run);
    registry.admission().admit(&attributes, &mut request).await?;
    is_for(target, &request)?;
    let (account, _) = registry.read_object(&target.resource, &target.namespace, &target.name).await?;
    let now = clock::now();
    complete(tokens, &mut request, &account, now)?;
    let errors = validate::validate_create(&kind_of(target)?, &request);
    if !errors.is_empty() {
        return Err(Status::invalid_kind(GROUP, KIND, "", &errors));
    }
    registry.admission().validate(&attributes, &request).await?;
    let bound = bound(registry, target, &request).await?;
    target.notes.warn_all(shortened(tokens, &mut request));
    let claims = claims(tokens, &account, &request, &bound, now);
    let token = tokens.sign(claims).ok_or_else(Status::no_such_path)?.map_err(Status::internal_error)?;
    let expires = now + SignedDuration::from_secs(meta::integer_at(&request, &["spec", "expirationSeconds"]));
    request["status"] = json!({"token": token, "expirationTimestamp": api::time::seconds(expires)});
    Ok(request)
}

/// Notes who asks for what.
fn own(options: &WriteOptions, target: &ResourceRequest, request: &mut Value) -> Result<(), Status> {
    let row = kind_of(target)?;
    let kind = apply::ApplyTarget::for_kind(&row.api_version(), KIND, row.ty, &target.subresource);
    let writer = options.writer(kind);
    // To upstream a reference that is not there is there and null, so that none is added.
    let mut before = writer.target.zero_object();
    meta::field_mut(&mut before, "spec").insert("boundObjectRef".into(), Value::Null);
    apply::track_update(&writer, Some(&before), request);
    Ok(())
}

/// The request must be about the account of the path.
fn is_for(target: &ResourceRequest, request: &Value) -> Result<(), Status> {
    let (name, namespace) = (meta::name(request), meta::namespace(request));
    if !namespace.is_empty() && namespace != target.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    if !name.is_empty() && name != target.name {
        let error = FieldError::invalid("metadata.name", name, "must match the service account name if specified");
        return Err(Status::invalid_kind(GROUP, KIND, &target.name, &[error]));
    }
    Ok(())
}

/// Fills in what the request leaves to the server.
fn complete(tokens: &Tokens, request: &mut Value, account: &Value, now: Timestamp) -> Result<(), Status> {
    let (uid, wanted) = (meta::uid(account), meta::uid(request));
    if !wanted.is_empty() && wanted != uid {
        let why =
            format!("the UID in the token request ({wanted}) does not match the UID of the service account ({uid})");
        return Err(conflict(GROUP, KIND, meta::name(account), &why));
    }
    if meta::list_at(request, &["spec", "audiences"]).is_empty() {
        request["spec"]["audiences"] = json!(tokens.audiences());
    }
    // Upstream writes the reference even where there is none.
    meta::field_mut(request, "spec").entry("boundObjectRef").or_insert(Value::Null);
    let metadata = meta::metadata_mut(request);
    for field in ["name", "namespace", "uid"] {
        metadata.insert(field.into(), account["metadata"][field].clone());
    }
    metadata.insert("creationTimestamp".into(), api::time::seconds(now).into());
    Ok(())
}

/// What a token is bound to, as its claims name it: it ends with the first of these objects that goes.
async fn bound(registry: &Registry, target: &ResourceRequest, request: &Value) -> Result<Value, Status> {
    let reference = &request["spec"]["boundObjectRef"];
    let mut claims = json!({});
    if reference.is_null() {
        return Ok(claims);
    }
    let text = |field: &str| meta::string_at(reference, &[field]);
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (name, namespace) = (text("name"), target.namespace.as_str());
    let (resource, namespace) = match (group, text("kind")) {
        ("", "Pod") => ("pods", namespace),
        ("", "Secret") => ("secrets", namespace),
        ("", "Node") => ("nodes", ""),
        (group, kind) => {
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(message));
        }
    };
    let (object, _) = registry.read_object(loopback::find_resource("", "v1", resource)?, namespace, name).await?;
    if resource == "pods" {
        if meta::string_at(&object, &["spec", "serviceAccountName"]) != target.name {
            let account = &target.name;
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        let node = meta::string_at(&object, &["spec", "nodeName"]);
        if !node.is_empty() {
            claims["node"] = match registry.read_object(loopback::find_resource("", "v1", "nodes")?, "", node).await {
                Ok((node, _)) => named(&node),
                Err(status) if status.code == 404 => json!({"name": node}),
                Err(status) => return Err(status),
            };
        }
    }
    let wanted = text("uid");
    if !wanted.is_empty() && wanted != meta::uid(&object) {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(conflict(group, text("kind"), name, &why));
    }
    claims[text("kind").to_ascii_lowercase()] = named(&object);
    Ok(claims)
}

/// No token lives longer than the settings say.
fn shortened(tokens: &Tokens, request: &mut Value) -> Option<String> {
    let longest = i64::try_from(tokens.limits().longest.as_secs()).unwrap_or(i64::MAX);
    let asked = meta::integer_at(request, &["spec", "expirationSeconds"]);
    if longest == 0 || asked <= longest {
        return None;
    }
    request["spec"]["expirationSeconds"] = longest.into();
    Some(format!("requested expiration of {asked} seconds shortened to {longest} seconds"))
}

fn claims(tokens: &Tokens, account: &Value, request: &Value, bound: &Value, now: Timestamp) -> Value {
    let now = now.as_second();
    let asked = meta::integer_at(request, &["spec", "expirationSeconds"]);
    let audiences = meta::list_at(request, &["spec", "audiences"]);
    let own = audiences.iter().all(|audience| tokens.audiences().iter().any(|known| audience == known.as_str()));
    let (name, namespace) = (meta::name(account), meta::namespace(account));
    let mut details = bound.clone();
    details["namespace"] = namespace.into();
    details["serviceaccount"] = named(account);
    let extended = tokens.limits().extend && asked == RENEWED && own && bound.get("pod").is_some();
    if extended {
        details["warnafter"] = (now + asked).into();
    }
    json!({
        "aud": audiences, "exp": now + if extended { EXTENDED } else { asked }, "iat": now, "nbf": now,
        "jti": uuid::Uuid::new_v4().to_string(), "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io": details,
    })
}

fn named(object: &Value) -> Value {
    json!({"name": meta::name(object), "uid": meta::uid(object)})
}

fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Status {
    let mut details = json!({"name": name, "kind": kind});
    let mut about = kind.to_owned();
    if !group.is_empty() {
        details["group"] = group.into();
        about = format!("{kind}.{group}");
    }
    let message = format!("Operation cannot be fulfilled on {about} {name:?}: {why}");
    Status { code: 409, reason: "Conflict", message, details: Some(details), continue_token: None }
}
