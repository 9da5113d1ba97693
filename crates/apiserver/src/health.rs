//! `/livez`, `/readyz` and `/healthz`: named health checks, with upstream's names for equivalent functions.
//!
//! Bootstrap objects are created before the first request, so the post-start hook checks pass from the start.

use std::collections::BTreeSet;

use apiserver_core::{Body, body::text_response, query::Query};
use http::{HeaderValue, Response, StatusCode, request::Parts};

use crate::{Server, encode};

/// The condition of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckCondition {
    /// Fulfilled before the first request.
    SinceStart,
    /// The store is healthy.
    Store,
    /// The server is not shutting down.
    Serving,
}

struct HealthCheck {
    name: &'static str,
    condition: CheckCondition,
    scope: CheckScope,
}

/// The endpoints of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckScope {
    All,
    /// All but `/readyz`.
    Liveness,
    /// Only `/readyz`.
    Readiness,
}

const fn startup_check(name: &'static str) -> HealthCheck {
    HealthCheck { name, condition: CheckCondition::SinceStart, scope: CheckScope::All }
}

const ROOTS: [&str; 3] = ["healthz", "livez", "readyz"];
const CHECKS: &[HealthCheck] = &[
    startup_check("ping"),
    startup_check("log"),
    // Loopback requests use no certificate, so none can expire.
    HealthCheck {
        name: "loopback-serving-certificate",
        condition: CheckCondition::SinceStart,
        scope: CheckScope::Liveness,
    },
    HealthCheck { name: "etcd", condition: CheckCondition::Store, scope: CheckScope::All },
    HealthCheck { name: "etcd-readiness", condition: CheckCondition::Store, scope: CheckScope::Readiness },
    // Indexes are complete before the first request.
    HealthCheck { name: "informer-sync", condition: CheckCondition::SinceStart, scope: CheckScope::Readiness },
    startup_check("poststarthook/start-apiserver-admission-initializer"),
    startup_check("poststarthook/generic-apiserver-start-informers"),
    startup_check("poststarthook/priority-and-fairness-config-consumer"),
    startup_check("poststarthook/priority-and-fairness-filter"),
    startup_check("poststarthook/storage-object-count-tracker-hook"),
    startup_check("poststarthook/start-system-namespaces-controller"),
    startup_check("poststarthook/start-cluster-authentication-info-controller"),
    startup_check("poststarthook/start-kube-apiserver-identity-lease-controller"),
    startup_check("poststarthook/start-kube-apiserver-identity-lease-garbage-collector"),
    startup_check("poststarthook/storage-readiness"),
    startup_check("poststarthook/start-legacy-token-tracking-controller"),
    startup_check("poststarthook/start-service-ip-repair-controllers"),
    startup_check("poststarthook/rbac/bootstrap-roles"),
    startup_check("poststarthook/scheduling/bootstrap-system-priority-classes"),
    startup_check("poststarthook/priority-and-fairness-config-producer"),
    startup_check("poststarthook/bootstrap-controller"),
    startup_check("poststarthook/start-kubernetes-service-cidr-controller"),
    startup_check("poststarthook/kube-apiserver-autoregistration"),
    startup_check("autoregister-completion"),
    HealthCheck { name: "shutdown", condition: CheckCondition::Serving, scope: CheckScope::Readiness },
];

/// The paths of all checks.
pub fn check_paths() -> Vec<String> {
    let of_root = |root: &str| {
        let checks = checks_of(root).map(|check| format!("/{root}/{}", check.name));
        std::iter::once(format!("/{root}")).chain(checks).collect::<Vec<_>>()
    };
    ROOTS.iter().flat_map(|root| of_root(root)).collect()
}

fn checks_of(root: &str) -> impl Iterator<Item = &'static HealthCheck> {
    let other = if root == "readyz" { CheckScope::Liveness } else { CheckScope::Readiness };
    CHECKS.iter().filter(move |check| check.scope != other)
}

/// The result of every check: endpoint, name and success.
pub async fn check_results(server: &Server) -> Vec<(&'static str, &'static str, bool)> {
    let mut results = Vec::new();
    for root in ROOTS {
        for check in checks_of(root) {
            results.push((root, check.name, check.run_check(server).await.is_none()));
        }
    }
    results
}

/// Handles a health path; `None` for other paths.
pub async fn handle_health(server: &Server, request: &Parts) -> Option<Response<Body>> {
    let path = request.uri.path().trim_start_matches('/').trim_end_matches('/');
    let (root, name) = path.split_once('/').unwrap_or((path, ""));
    let root = ROOTS.into_iter().find(|known| *known == root)?;
    if name.is_empty() {
        return Some(run_all_checks(server, request, root).await);
    }
    let Some(check) = checks_of(root).find(|check| check.name == name) else {
        return Some(encode::not_found_response());
    };
    Some(match check.run_counted(server, root).await {
        None => text_response("ok"),
        Some(why) => failure_response(format!("internal server error: {why}\n")),
    })
}

async fn run_all_checks(server: &Server, request: &Parts, root: &'static str) -> Response<Body> {
    let query = Query::parse(request.uri.query().unwrap_or_default());
    let mut excluded: BTreeSet<&str> = query.get_all("exclude").collect();
    let (mut lines, mut well) = (String::new(), true);
    for check in checks_of(root) {
        let name = check.name;
        if query.get_all("exclude").any(|one| one == name) {
            excluded.remove(name);
            lines += &format!("[+]{name} excluded: ok\n");
        } else if let Some(why) = check.run_counted(server, root).await {
            tracing::info!(check = name, why, "{root} check failed");
            well = false;
            lines += &format!("[-]{name} failed: reason withheld\n");
        } else {
            lines += &format!("[+]{name} ok\n");
        }
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        lines += &format!("warn: some health checks cannot be excluded: no matches for {}\n", names.join(","));
    }
    if !well {
        return failure_response(format!("{lines}{root} check failed\n"));
    }
    let verbose = query.get_all("verbose").next().is_some();
    with_no_sniff(text_response(if verbose { format!("{lines}{root} check passed\n") } else { "ok".to_owned() }))
}

impl HealthCheck {
    /// Runs the check and counts the result.
    async fn run_counted(&self, server: &Server, root: &'static str) -> Option<String> {
        let failure = self.run_check(server).await;
        server.shared.metrics.count_check(root, self.name, failure.is_none());
        failure
    }

    /// Runs the check; returns the failure, if any.
    async fn run_check(&self, server: &Server) -> Option<String> {
        match self.condition {
            CheckCondition::SinceStart => None,
            CheckCondition::Serving => {
                server.shared.shutting_down.is_cancelled().then(|| "process is shutting down".to_owned())
            }
            CheckCondition::Store => {
                let limit = server.shared.options.serving.store_timeout;
                match tokio::time::timeout(limit, server.registry().store().check_health()).await {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("store health check timed out".to_owned()),
                }
            }
        }
    }
}

fn failure_response(text: String) -> Response<Body> {
    let mut response = with_no_sniff(text_response(text));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

fn with_no_sniff(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
