//! Who somebody is: `TokenReview` and `SelfSubjectReview`.

use api::{Value, meta, status::Status};
use apiserver_core::{User, clock, request::ResourceRequest};
use authn::Authenticator;
use serde_json::json;

/// A review of this group with its answer.
pub async fn answer(
    authenticator: &Authenticator,
    target: &ResourceRequest,
    mut review: Value,
) -> Result<Value, Status> {
    review["status"] = match target.resource.kind {
        // Of the question nothing is left in the answer.
        "SelfSubjectReview" => {
            review["metadata"] = json!({"creationTimestamp": clock::seconds()});
            json!({"userInfo": info(&target.user)})
        }
        _ => token(authenticator, &review).await?,
    };
    Ok(review)
}

/// Whose token it is. What is wrong with a token may be told here: who asks may review tokens.
async fn token(authenticator: &Authenticator, review: &Value) -> Result<Value, Status> {
    let token = meta::string_at(review, &["spec", "token"]);
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted = meta::list_at(review, &["spec", "audiences"]);
    let wanted: Vec<String> = wanted.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let wanted = if wanted.is_empty() { authenticator.audiences().to_vec() } else { wanted };
    let found = match authenticator.review(token, &wanted).await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(json!({"user": {}})),
        Err(why) => return Ok(json!({"user": {}, "error": why.to_string()})),
    };
    if !wanted.is_empty() && !wanted.iter().any(|audience| found.audiences.contains(audience)) {
        return Err(Status::internal_error("error validating audiences"));
    }
    let mut status = json!({"authenticated": true, "user": info(&found.user)});
    if !found.audiences.is_empty() {
        status["audiences"] = json!(found.audiences);
    }
    Ok(status)
}

/// A user as reviews show it.
pub fn info(user: &User) -> Value {
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
