//! `serviceaccounts/<name>/token`: issues service account tokens, optionally bound to a pod, secret or node.

use std::sync::Arc;

use admission::AdmissionAttributes;
use api::{
    Value, apply, meta,
    status::Status,
    validate::{self, FieldError},
};
use apiserver_core::{body::RequestBody, clock, loopback, request::ResourceRequest};
use async_trait::async_trait;
use authn::tokens::TokenIssuer;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{Registry, RequestOutcome, VirtualResource, WriteOptions, decode_subresource_body, subresource_kind};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// The expiration that kubelets request for projected tokens by default. Such tokens are extended to
/// [`EXTENDED_TOKEN_SECONDS`] for clients that do not reload them.
const POD_TOKEN_SECONDS: i64 = 60 * 60 + 7;
/// Lifetime of an extended token. Use after the requested expiration is recorded.
const EXTENDED_TOKEN_SECONDS: i64 = 365 * 24 * 60 * 60;

/// Handles `TokenRequest` objects.
pub struct TokenRequestHandler {
    /// Signs tokens; `None` disables the path.
    pub tokens: Option<Arc<TokenIssuer>>,
}

#[async_trait]
impl VirtualResource for TokenRequestHandler {
    async fn handle(
        &self,
        registry: &Registry,
        request: &ResourceRequest,
        body: &RequestBody,
    ) -> Result<RequestOutcome, Status> {
        let tokens = self.tokens.as_deref().filter(|tokens| tokens.can_sign());
        // Without a signing key the path does not exist.
        let object = issue_token(registry, tokens.ok_or_else(Status::no_such_path)?, request, body).await?;
        Ok(RequestOutcome::Object { object, stored: None, code: 201 })
    }
}

/// Issues a token and adds warnings to the request.
async fn issue_token(
    registry: &Registry,
    tokens: &TokenIssuer,
    request: &ResourceRequest,
    body: &RequestBody,
) -> Result<Value, Status> {
    let options = WriteOptions::from_request(request, body)?;
    let mut token_request = decode_subresource_body(request, body, options.validation)?;
    track_managed_fields(&options, request, &mut token_request)?;
    let attributes = AdmissionAttributes::for_create(registry, request, options.dry_run);
    registry.admission().admit(&attributes, &mut token_request).await?;
    check_subject(request, &token_request)?;
    let (account, _) = registry.read_object(&request.resource, &request.namespace, &request.name).await?;
    let now = clock::now();
    complete_request(tokens, &mut token_request, &account, now)?;
    let errors = validate::validate_create(&subresource_kind(request)?, &token_request);
    if !errors.is_empty() {
        return Err(Status::invalid_kind(GROUP, KIND, "", &errors));
    }
    registry.admission().validate(&attributes, &token_request).await?;
    let bound = bound_object_claims(registry, request, &token_request).await?;
    request.warnings.add_warnings(limit_expiration(tokens, &mut token_request));
    let claims = build_claims(tokens, &account, &token_request, &bound, now);
    let token = tokens.sign_claims(claims).ok_or_else(Status::no_such_path)?.map_err(Status::internal_error)?;
    let expires = now + SignedDuration::from_secs(meta::integer_at(&token_request, &["spec", "expirationSeconds"]));
    token_request["status"] = json!({"token": token, "expirationTimestamp": api::time::format_seconds(expires)});
    Ok(token_request)
}

/// Sets the managed fields of the `TokenRequest`.
fn track_managed_fields(
    options: &WriteOptions,
    request: &ResourceRequest,
    token_request: &mut Value,
) -> Result<(), Status> {
    let row = subresource_kind(request)?;
    let kind = apply::ApplyTarget::for_kind(&row.api_version(), KIND, row.ty, &request.subresource);
    let writer = options.apply_request(kind);
    // Upstream treats a missing reference as null, which adds no managed field.
    let mut before = writer.target.zero_object();
    meta::field_mut(&mut before, "spec").insert("boundObjectRef".into(), Value::Null);
    apply::track_update(&writer, Some(&before), token_request);
    Ok(())
}

/// Checks that name and namespace match the service account of the path.
fn check_subject(request: &ResourceRequest, token_request: &Value) -> Result<(), Status> {
    let (name, namespace) = (meta::name(token_request), meta::namespace(token_request));
    if !namespace.is_empty() && namespace != request.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    if !name.is_empty() && name != request.name {
        let error = FieldError::invalid("metadata.name", name, "must match the service account name if specified");
        return Err(Status::invalid_kind(GROUP, KIND, &request.name, &[error]));
    }
    Ok(())
}

/// Fills in audiences and metadata and checks the UID.
fn complete_request(
    tokens: &TokenIssuer,
    token_request: &mut Value,
    account: &Value,
    now: Timestamp,
) -> Result<(), Status> {
    let (uid, wanted) = (meta::uid(account), meta::uid(token_request));
    if !wanted.is_empty() && wanted != uid {
        let why =
            format!("the UID in the token request ({wanted}) does not match the UID of the service account ({uid})");
        return Err(conflict_status(GROUP, KIND, meta::name(account), &why));
    }
    if meta::list_at(token_request, &["spec", "audiences"]).is_empty() {
        token_request["spec"]["audiences"] = json!(tokens.audiences());
    }
    // Upstream encodes a missing reference as null.
    meta::field_mut(token_request, "spec").entry("boundObjectRef").or_insert(Value::Null);
    let metadata = meta::metadata_mut(token_request);
    for field in ["name", "namespace", "uid"] {
        metadata.insert(field.into(), account["metadata"][field].clone());
    }
    metadata.insert("creationTimestamp".into(), api::time::format_seconds(now).into());
    Ok(())
}

/// The claims of the bound objects; the token is invalid once one of them is deleted.
async fn bound_object_claims(
    registry: &Registry,
    request: &ResourceRequest,
    token_request: &Value,
) -> Result<Value, Status> {
    let reference = &token_request["spec"]["boundObjectRef"];
    let mut claims = json!({});
    if reference.is_null() {
        return Ok(claims);
    }
    let text = |field: &str| meta::string_at(reference, &[field]);
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (name, namespace) = (text("name"), request.namespace.as_str());
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
        if meta::string_at(&object, &["spec", "serviceAccountName"]) != request.name {
            let account = &request.name;
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        let node = meta::string_at(&object, &["spec", "nodeName"]);
        if !node.is_empty() {
            claims["node"] = match registry.read_object(loopback::find_resource("", "v1", "nodes")?, "", node).await {
                Ok((node, _)) => name_and_uid(&node),
                Err(status) if status.is_not_found() => json!({"name": node}),
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
        return Err(conflict_status(group, text("kind"), name, &why));
    }
    claims[text("kind").to_ascii_lowercase()] = name_and_uid(&object);
    Ok(claims)
}

/// Limits the expiration to the configured maximum; returns a warning if it was longer.
fn limit_expiration(tokens: &TokenIssuer, token_request: &mut Value) -> Option<String> {
    let longest = i64::try_from(tokens.limits().longest.as_secs()).unwrap_or(i64::MAX);
    let asked = meta::integer_at(token_request, &["spec", "expirationSeconds"]);
    if longest == 0 || asked <= longest {
        return None;
    }
    token_request["spec"]["expirationSeconds"] = longest.into();
    Some(format!("requested expiration of {asked} seconds shortened to {longest} seconds"))
}

fn build_claims(tokens: &TokenIssuer, account: &Value, token_request: &Value, bound: &Value, now: Timestamp) -> Value {
    let now = now.as_second();
    let asked = meta::integer_at(token_request, &["spec", "expirationSeconds"]);
    let audiences = meta::list_at(token_request, &["spec", "audiences"]);
    let own = audiences.iter().all(|audience| tokens.audiences().iter().any(|known| audience == known.as_str()));
    let (name, namespace) = (meta::name(account), meta::namespace(account));
    let mut details = bound.clone();
    details["namespace"] = namespace.into();
    details["serviceaccount"] = name_and_uid(account);
    let extended = tokens.limits().extend && asked == POD_TOKEN_SECONDS && own && bound.get("pod").is_some();
    if extended {
        details["warnafter"] = (now + asked).into();
    }
    json!({
        "aud": audiences, "exp": now + if extended { EXTENDED_TOKEN_SECONDS } else { asked }, "iat": now, "nbf": now,
        "jti": uuid::Uuid::new_v4().to_string(), "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io": details,
    })
}

fn name_and_uid(object: &Value) -> Value {
    json!({"name": meta::name(object), "uid": meta::uid(object)})
}

fn conflict_status(group: &str, kind: &str, name: &str, why: &str) -> Status {
    let mut details = json!({"name": name, "kind": kind});
    let mut about = kind.to_owned();
    if !group.is_empty() {
        details["group"] = group.into();
        about = format!("{kind}.{group}");
    }
    let message = format!("Operation cannot be fulfilled on {about} {name:?}: {why}");
    Status::new(409, "Conflict", message).with_details(details)
}
