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
enum Holds {
    /// It was done before the first request.
    SinceStart,
    /// The store answers.
    Store,
    /// The server was not asked to end.
    Serving,
}

struct Check {
    name: &'static str,
    holds: Holds,
    of: Of,
}

/// Whose check it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    All,
    /// All but `/readyz`.
    Liveness,
    /// Only `/readyz`.
    Readiness,
}

const fn check(name: &'static str) -> Check {
    Check { name, holds: Holds::SinceStart, of: Of::All }
}

const ROOTS: [&str; 3] = ["healthz", "livez", "readyz"];
const CHECKS: &[Check] = &[
    check("ping"),
    check("log"),
    // What speaks to the server from inside shows no certificate, so none can have expired.
    Check { name: "loopback-serving-certificate", holds: Holds::SinceStart, of: Of::Liveness },
    Check { name: "etcd", holds: Holds::Store, of: Of::All },
    Check { name: "etcd-readiness", holds: Holds::Store, of: Of::Readiness },
    // Views are complete before the first request.
    Check { name: "informer-sync", holds: Holds::SinceStart, of: Of::Readiness },
    check("poststarthook/start-apiserver-admission-initializer"),
    check("poststarthook/generic-apiserver-start-informers"),
    check("poststarthook/priority-and-fairness-config-consumer"),
    check("poststarthook/priority-and-fairness-filter"),
    check("poststarthook/storage-object-count-tracker-hook"),
    check("poststarthook/start-system-namespaces-controller"),
    check("poststarthook/start-cluster-authentication-info-controller"),
    check("poststarthook/start-kube-apiserver-identity-lease-controller"),
    check("poststarthook/start-kube-apiserver-identity-lease-garbage-collector"),
    check("poststarthook/storage-readiness"),
    check("poststarthook/start-legacy-token-tracking-controller"),
    check("poststarthook/start-service-ip-repair-controllers"),
    check("poststarthook/rbac/bootstrap-roles"),
    check("poststarthook/scheduling/bootstrap-system-priority-classes"),
    check("poststarthook/priority-and-fairness-config-producer"),
    check("poststarthook/bootstrap-controller"),
    check("poststarthook/start-kubernetes-service-cidr-controller"),
    check("poststarthook/kube-apiserver-autoregistration"),
    check("autoregister-completion"),
    Check { name: "shutdown", holds: Holds::Serving, of: Of::Readiness },
];

/// The paths of all checks.
pub fn paths() -> Vec<String> {
    let of_root = |root: &str| {
        let checks = checks(root).map(|check| format!("/{root}/{}", check.name));
        std::iter::once(format!("/{root}")).chain(checks).collect::<Vec<_>>()
    };
    ROOTS.iter().flat_map(|root| of_root(root)).collect()
}

fn checks(root: &str) -> impl Iterator<Item = &'static Check> {
    let other = if root == "readyz" { Of::Liveness } else { Of::Readiness };
    CHECKS.iter().filter(move |check| check.of != other)
}

/// Every check of every path, and whether it holds.
pub async fn results(server: &Server) -> Vec<(&'static str, &'static str, bool)> {
    let mut results = Vec::new();
    for root in ROOTS {
        for check in checks(root) {
            results.push((root, check.name, check.failure(server).await.is_none()));
        }
    }
    results
}

/// Answers a path of health; `None` for other paths.
pub async fn answer(server: &Server, request: &Parts) -> Option<Response<Body>> {
    let path = request.uri.path().trim_start_matches('/').trim_end_matches('/');
    let (root, name) = path.split_once('/').unwrap_or((path, ""));
    let root = ROOTS.into_iter().find(|known| *known == root)?;
    if name.is_empty() {
        return Some(all(server, request, root).await);
    }
    let Some(check) = checks(root).find(|check| check.name == name) else { return Some(encode::no_page()) };
    Some(match check.asked(server, root).await {
        None => paths::text("ok"),
        Some(why) => failed(format!("internal server error: {why}\n")),
    })
}

async fn all(server: &Server, request: &Parts, root: &'static str) -> Response<Body> {
    let query = Query::parse(request.uri.query().unwrap_or_default());
    let mut excluded: BTreeSet<&str> = query.get_all("exclude").collect();
    let (mut lines, mut well) = (String::new(), true);
    for check in checks(root) {
        let name = check.name;
        if query.get_all("exclude").any(|one| one == name) {
            excluded.remove(name);
            lines += &format!("[+]{name} excluded: ok\n");
        } else if let Some(why) = check.asked(server, root).await {
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
        return failed(format!("{lines}{root} check failed\n"));
    }
    let verbose = query.get_all("verbose").next().is_some();
    no_sniff(paths::text(if verbose { format!("{lines}{root} check passed\n") } else { "ok".to_owned() }))
}

impl Check {
    /// The same for somebody who asked, which counts.
    async fn asked(&self, server: &Server, root: &'static str) -> Option<String> {
        let failure = self.failure(server).await;
        server.shared.metrics.checked(root, self.name, failure.is_none());
        failure
    }

    /// Why it does not hold, if it does not.
    async fn failure(&self, server: &Server) -> Option<String> {
        match self.holds {
            Holds::SinceStart => None,
            Holds::Serving => server.shared.ending.is_cancelled().then(|| "process is shutting down".to_owned()),
            Holds::Store => {
                let limit = server.shared.settings.serving.store_timeout;
                match tokio::time::timeout(limit, server.registry().store().check_health()).await {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("the store does not answer in time".to_owned()),
                }
            }
        }
    }
}

fn failed(text: String) -> Response<Body> {
    let mut response = no_sniff(paths::text(text));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

fn no_sniff(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
