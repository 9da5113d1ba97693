//! Authentication reviews: `TokenReview` and `SelfSubjectReview`.

use api::{Value, meta, status::Status};
use apiserver_core::{User, clock, request::ResourceRequest};
use authn::Authenticator;
use serde_json::json;

/// Sets the status of a review of this group.
pub async fn review_authentication(
    authenticator: &Authenticator,
    request: &ResourceRequest,
    mut review: Value,
) -> Result<Value, Status> {
    review["status"] = match request.resource.kind {
        // The response omits the spec of the request.
        "SelfSubjectReview" => {
            review["metadata"] = json!({"creationTimestamp": clock::now_in_seconds()});
            json!({"userInfo": user_info(&request.user)})
        }
        _ => review_token(authenticator, &review).await?,
    };
    Ok(review)
}

/// Authenticates the token of a `TokenReview`. Errors are returned, because the caller is authorized to review tokens.
async fn review_token(authenticator: &Authenticator, review: &Value) -> Result<Value, Status> {
    let token = meta::string_at(review, &["spec", "token"]);
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted = meta::list_at(review, &["spec", "audiences"]);
    let wanted: Vec<String> = wanted.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let wanted = if wanted.is_empty() { authenticator.audiences().to_vec() } else { wanted };
    let found = match authenticator.review_token(token, &wanted).await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(json!({"user": {}})),
        Err(why) => return Ok(json!({"user": {}, "error": why.to_string()})),
    };
    if !wanted.is_empty() && !wanted.iter().any(|audience| found.audiences.contains(audience)) {
        return Err(Status::internal_error("error validating audiences"));
    }
    let mut status = json!({"authenticated": true, "user": user_info(&found.user)});
    if !found.audiences.is_empty() {
        status["audiences"] = json!(found.audiences);
    }
    Ok(status)
}

/// The `UserInfo` of a user.
pub fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}
