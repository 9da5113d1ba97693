//! The endpoints that every component serves: health, metrics and configuration.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};
use transport::query::Query;

use crate::{
    delegated_auth::{AccessAttributes, DelegatedAuth, UserInfo},
    https_server::{ResponseBody, body_of},
};

/// A named health check.
type NamedHealthCheck = (&'static str, HealthCheck);
/// A function that tells whether a part of the component works.
pub type HealthCheck = Box<dyn Fn() -> Result<(), UnhealthyError> + Send + Sync>;

/// The reason why a health check fails, shown where a single check is asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnhealthyError(pub String);

/// Health, metrics and configuration of a component.
pub struct ComponentEndpoints {
    auth: DelegatedAuth,
    always_allow_paths: Vec<String>,
    checks: Vec<NamedHealthCheck>,
    metrics: fn() -> String,
    configz: Value,
}

impl ComponentEndpoints {
    /// Endpoints with a check `ping`. `configz` is the document of `/configz`; paths of `always_allow_paths` need no
    /// authorization, and one that ends with `*` stands for all below it.
    pub fn new(auth: DelegatedAuth, always_allow_paths: Vec<String>, metrics: fn() -> String, configz: Value) -> Self {
        let ping: NamedHealthCheck = ("ping", Box::new(|| Ok(())));
        Self { auth, always_allow_paths, checks: vec![ping], metrics, configz }
    }

    /// Adds a health check.
    pub fn with_check(mut self, name: &'static str, check: HealthCheck) -> Self {
        self.checks.push((name, check));
        self
    }

    /// Authenticates, authorizes and answers a request.
    pub async fn respond(
        &self,
        certificate_user: Option<&UserInfo>,
        method: &Method,
        (path, query): (&str, &str),
        headers: &mut HeaderMap,
    ) -> Response<ResponseBody> {
        let user = match self.auth.authenticate(certificate_user, headers).await {
            Ok(user) => user.unwrap_or_else(UserInfo::anonymous),
            Err(_) => return status_response(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
        };
        let verb = method.as_str().to_ascii_lowercase();
        if !self.is_always_allowed(path) {
            let access = AccessAttributes::NonResource { verb: verb.clone(), path: path.to_owned() };
            match self.auth.authorize(&user, &access).await {
                Ok(true) => {}
                Ok(false) => {
                    let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
                    return status_response(StatusCode::FORBIDDEN, "Forbidden", &message);
                }
                Err(error) => {
                    let message = format!("Internal Server Error: {path:?}: {error}");
                    return status_response(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message);
                }
            }
        }
        match path.trim_end_matches('/') {
            "/metrics" => text_response(StatusCode::OK, (self.metrics)()),
            "/configz" => json_response(StatusCode::OK, &self.configz),
            path => match path.strip_prefix('/').map(|path| path.split_once('/').unwrap_or((path, ""))) {
                Some((group @ ("healthz" | "livez" | "readyz"), check)) => self.health(group, check, query),
                _ => text_response(StatusCode::NOT_FOUND, "404 page not found\n".into()),
            },
        }
    }

    fn is_always_allowed(&self, path: &str) -> bool {
        self.always_allow_paths.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == allowed,
        })
    }

    /// Runs all checks, or the one that the path names, in upstream's words.
    fn health(&self, group: &str, check: &str, query: &str) -> Response<ResponseBody> {
        if !check.is_empty() {
            let Some((_, run)) = self.checks.iter().find(|(name, _)| *name == check) else {
                return text_response(StatusCode::NOT_FOUND, "404 page not found\n".into());
            };
            return match run() {
                Ok(()) => text_response(StatusCode::OK, "ok".into()),
                Err(why) => text_response(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")),
            };
        }
        let results: Vec<_> = self.checks.iter().map(|(name, run)| (name, run())).collect();
        let lines: String = results
            .iter()
            .map(|(name, result)| match result {
                Ok(()) => format!("[+]{name} ok\n"),
                Err(_) => format!("[-]{name} failed: reason withheld\n"),
            })
            .collect();
        let is_verbose = Query::parse(query).get_all("verbose").next().is_some();
        match results.iter().all(|(_, result)| result.is_ok()) {
            true if is_verbose => text_response(StatusCode::OK, format!("{lines}{group} check passed\n")),
            true => text_response(StatusCode::OK, "ok".into()),
            false => text_response(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{group} check failed\n")),
        }
    }
}

fn text_response(status: StatusCode, text: String) -> Response<ResponseBody> {
    let mut response = Response::new(body_of(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn json_response(status: StatusCode, document: &Value) -> Response<ResponseBody> {
    let mut response = text_response(status, document.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status_response(code: StatusCode, reason: &str, message: &str) -> Response<ResponseBody> {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16()});
    if code == StatusCode::FORBIDDEN {
        status["details"] = json!({});
    }
    json_response(code, &status)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use kube::client::Body;

    use super::*;
    use crate::delegated_auth::DelegatedAuthConfig;

    /// Endpoints whose API server allows `admin` everything and knows the token `good`.
    fn endpoints() -> ComponentEndpoints {
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            review["status"] = match review["kind"].as_str() {
                Some("TokenReview") => {
                    json!({"authenticated": review["spec"]["token"] == "good", "user": {"username": "admin"}})
                }
                _ => json!({"allowed": review["spec"]["user"] == "admin"}),
            };
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
        });
        let auth = DelegatedAuth::new(kube::Client::new(service, "default"), DelegatedAuthConfig::default());
        let open = vec!["/healthz".to_owned(), "/livez*".to_owned()];
        ComponentEndpoints::new(auth, open, || "metric 1\n".into(), json!({"a": 1}))
            .with_check("broken", Box::new(|| Err(UnhealthyError("disk full".into()))))
    }

    async fn check(token: &str, path: &str, query: &str, want: (u16, &str)) {
        let mut headers = HeaderMap::new();
        if !token.is_empty() {
            headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        let response = endpoints().respond(None, &Method::GET, (path, query), &mut headers).await;
        let status = response.status().as_u16();
        let body = String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert_eq!(status, want.0, "{path}: {body}");
        assert!(body.contains(want.1), "{path}: {body}");
    }

    #[tokio::test]
    async fn protected_paths_need_a_permitted_user() {
        check("", "/metrics", "", (403, "User \\\"system:anonymous\\\" cannot get path \\\"/metrics\\\"")).await;
        check("bad", "/metrics", "", (401, "Unauthorized")).await;
        check("good", "/metrics", "", (200, "metric 1")).await;
        check("good", "/configz", "", (200, "{\"a\":1}")).await;
        check("good", "/other", "", (404, "404 page not found")).await;
    }

    #[tokio::test]
    async fn health_names_the_checks_that_fail() {
        check("", "/healthz", "", (500, "[+]ping ok\n[-]broken failed: reason withheld\nhealthz check failed")).await;
        check("", "/livez/ping", "", (200, "ok")).await;
        check("", "/livez/broken", "", (500, "internal server error: disk full")).await;
        check("good", "/healthz/none", "", (404, "404")).await;
        check("", "/healthz/ping", "", (403, "forbidden")).await;
    }
}
