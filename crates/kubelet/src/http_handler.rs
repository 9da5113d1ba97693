//! Types that the handlers of the kubelet's HTTP server share: query parameters and responses.

pub use component_server::ResponseBody;
use component_server::body_of;
use http::{Response, StatusCode, header};

/// Builds a plain-text response.
pub fn text_response(status: StatusCode, message: &str) -> Response<ResponseBody> {
    let mut response = Response::new(body_of(message.to_owned()));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// A query parameter is invalid: its name and the reason.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidParameter(pub String);

/// Decoded query parameters.
pub struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Parses a query string.
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
    }

    /// Returns the first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns all values of `key`.
    pub fn get_all(&self, key: &str) -> Vec<String> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.clone()).collect()
    }

    /// Whether `key` is present and not `0` or `false`.
    pub fn is_set(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "0" | "false"))
    }

    /// Parses a number; the error names the key.
    pub fn get_number(&self, key: &str) -> Result<Option<u64>, InvalidParameter> {
        let parse =
            |value: &str| value.parse().map_err(|_| InvalidParameter(format!("{key}: {value:?} is not a number")));
        self.get(key).filter(|value| !value.is_empty()).map(parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_decoded() {
        let query = QueryParameters::parse(Some(
            "command=sh&command=-c&command=echo%20%22a%26b%22+c&tty=1&stdin=false&tailLines=x",
        ));
        assert_eq!(query.get_all("command"), ["sh", "-c", "echo \"a&b\" c"]);
        assert!(query.is_set("tty") && !query.is_set("stdin") && !query.is_set("absent"));
        assert!(query.get_number("tailLines").is_err());
        assert_eq!(query.get_number("absent"), Ok(None));
    }
}
