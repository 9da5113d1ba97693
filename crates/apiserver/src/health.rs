//! `/livez`, `/readyz` and `/healthz`: named checks, all together or one by one, under upstream's names where this server
//! does the same thing.
//!
//! What a fresh cluster has is made before the first request is answered, so those checks hold as soon as one can ask.

use std::collections::BTreeSet;

use apiserver_core::{Body, query::Query};
use http::{HeaderValue, Response, StatusCode, request::Parts};

use crate::{Server, encode, paths};

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckCondition {
    /// It was done before the first request.
    SinceStart,
    /// The store answers.
    Store,
    /// The server was not asked to end.
    Serving,
}

struct HealthCheck {
    name: &'static str,
    condition: CheckCondition,
    scope: CheckScope,
}

/// Whose check it is.
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
    // What speaks to the server from inside shows no certificate, so none can have expired.
    HealthCheck { name: "loopback-serving-certificate", condition: CheckCondition::SinceStart, scope: CheckScope::Liveness },
    HealthCheck { name: "etcd", condition: CheckCondition::Store, scope: CheckScope::All },
    HealthCheck { name: "etcd-readiness", condition: CheckCondition::Store, scope: CheckScope::Readiness },
    // Views are complete before the first request.
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

/// Every check of every path, and whether it holds.
pub async fn check_results(server: &Server) -> Vec<(&'static str, &'static str, bool)> {
    let mut results = Vec::new();
    for root in ROOTS {
        for check in checks_of(root) {
            check_results.push((root, check.name, check.run_check(server).await.is_none()));
        }
    }
    check_results
}

/// Answers a path of health; `None` for other paths.
pub async fn handle_health(server: &Server, request: &Parts) -> Option<Response<Body>> {
    let path = request.uri.path().trim_start_matches('/').trim_end_matches('/');
    let (root, name) = path.split_once('/').unwrap_or((path, ""));
    let root = ROOTS.into_iter().find(|known| *known == root)?;
    if name.is_empty() {
        return Some(run_all_checks(server, request, root).await);
    }
    let Some(check) = checks_of(root).find(|check| check.name == name) else { return Some(encode::not_found_response()) };
    Some(match check.run_counted(server, root).await {
        None => paths::text("ok"),
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
    with_no_sniff(paths::text(if verbose { format!("{lines}{root} check passed\n") } else { "ok".to_owned() }))
}

impl HealthCheck {
    /// The same for somebody who asked, which counts.
    async fn run_counted(&self, server: &Server, root: &'static str) -> Option<String> {
        let failure = self.run_check(server).await;
        server.shared.metrics.count_check(root, self.name, failure.is_none());
        failure
    }

    /// Why it does not hold, if it does not.
    async fn run_check(&self, server: &Server) -> Option<String> {
        match self.condition {
            CheckCondition::SinceStart => None,
            CheckCondition::Serving => server.shared.shutting_down.is_cancelled().then(|| "process is shutting down".to_owned()),
            CheckCondition::Store => {
                let limit = server.shared.options.serving.store_timeout;
                match tokio::time::timeout(limit, server.registry().store().check_health()).await {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("the store does not answer in time".to_owned()),
                }
            }
        }
    }
}

fn failure_response(text: String) -> Response<Body> {
    let mut response = with_no_sniff(paths::text(text));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

fn with_no_sniff(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
