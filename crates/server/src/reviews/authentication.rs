//! Who somebody is: `TokenReview` and `SelfSubjectReview`.

use api::{Value, schema::Resource, status::Status};
use serde_json::json;

use crate::{Server, User};

/// The answer to a review of this group.
pub async fn status(_server: &Server, user: &User, resource: &Resource, _review: &Value) -> Result<Value, Status> {
    Ok(match resource.kind {
        "SelfSubjectReview" => {
            let mut info = json!({"username": user.name, "groups": user.groups});
            if !user.uid.is_empty() {
                info["uid"] = user.uid.as_str().into();
            }
            if !user.extra.is_empty() {
                info["extra"] = json!(user.extra);
            }
            json!({"userInfo": info})
        }
        _ => json!({"user": {}, "error": "invalid bearer token"}),
    })
}
