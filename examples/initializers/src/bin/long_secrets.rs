//! Refuses secrets whose values are shorter than 20 characters.

use base64::{Engine, prelude::BASE64_STANDARD};
use ferry_example_initializers::{Initializer, RejectedObject};
use serde_json::Value;

const SHORTEST: usize = 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let initializer = Initializer { name: "long-secrets.example.com", path: "/api/v1/secrets" };
    initializer.run(|secret| check(secret)).await
}

fn check(secret: &Value) -> Result<(), RejectedObject> {
    for (key, value) in secret["data"].as_object().into_iter().flatten() {
        let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        let length = String::from_utf8_lossy(&bytes).chars().count();
        if length < SHORTEST {
            let name = secret["metadata"]["name"].as_str().unwrap_or_default();
            let why = format!("secret {name:?}: {key} has {length} characters, and must have {SHORTEST} at least");
            return Err(RejectedObject(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(value: &str) -> Result<(), RejectedObject> {
        check(&json!({"metadata": {"name": "s"}, "data": {"k": BASE64_STANDARD.encode(value)}}))
    }

    #[test]
    fn short_secrets_are_refused() {
        assert_eq!(verdict(&"ä".repeat(20)), Ok(()));
        let why = "secret \"s\": k has 19 characters, and must have 20 at least";
        assert_eq!(verdict(&"x".repeat(19)), Err(RejectedObject(why.into())));
        assert_eq!(check(&json!({"metadata": {"name": "none"}})), Ok(()));
    }
}
