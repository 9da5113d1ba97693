//! Types that the handlers of the kubelet's HTTP server share: numbers in query parameters, and responses.

pub use component_server::ResponseBody;
use component_server::body_of;
use http::{Response, StatusCode, header};
use transport::query::Query;

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

/// Parses a number; the error names the parameter.
pub fn number_parameter(query: &Query, name: &str) -> Result<Option<u64>, InvalidParameter> {
    let parse = |value: &str| value.parse().map_err(|_| InvalidParameter(format!("{name}: {value:?} is not a number")));
    query.get(name).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_their_parameter() {
        let query = Query::parse("tailLines=x&limitBytes=5&sinceSeconds=");
        assert_eq!(number_parameter(&query, "tailLines").unwrap_err().to_string(), "tailLines: \"x\" is not a number");
        assert_eq!(number_parameter(&query, "limitBytes"), Ok(Some(5)));
        assert_eq!(number_parameter(&query, "sinceSeconds"), Ok(None));
        assert_eq!(number_parameter(&query, "absent"), Ok(None));
    }
}
