//! What a request to the kubelet is to authorizers: something of its node.

use http::Method;

/// What is to be done.
pub fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The subresources of the node one of which must be allowed: for some paths there are narrow ones, `proxy` is for most.
pub fn subresources(path: &str) -> Vec<&'static str> {
    let below = |parent: &str| path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    const OWN: [(&str, &str); 6] = [
        ("/stats", "stats"),
        ("/metrics", "metrics"),
        ("/logs", "log"),
        ("/checkpoint", "checkpoint"),
        ("/statusz", "statusz"),
        ("/flagz", "configz"),
    ];
    const NARROW: [(&str, &str); 4] =
        [("/pods", "pods"), ("/healthz", "healthz"), ("/configz", "configz"), ("/runningpods", "pods")];
    let of = |table: &[(&'static str, &'static str)]| table.iter().find(|(path, _)| below(path)).map(|(_, name)| *name);
    of(&NARROW).into_iter().chain([of(&OWN).unwrap_or("proxy")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_subresources_of_the_node() {
        for (path, want) in [
            ("/pods", vec!["pods", "proxy"]),
            ("/pods/", vec!["pods", "proxy"]),
            ("/podsy", vec!["proxy"]),
            ("/runningpods/", vec!["pods", "proxy"]),
            ("/healthz", vec!["healthz", "proxy"]),
            ("/healthz/ping", vec!["healthz", "proxy"]),
            ("/configz", vec!["configz", "proxy"]),
            ("/stats/summary", vec!["stats"]),
            ("/metrics/cadvisor", vec!["metrics"]),
            ("/logs/syslog", vec!["log"]),
            ("/checkpoint/a/b/c", vec!["checkpoint"]),
            ("/statusz", vec!["statusz"]),
            ("/flagz", vec!["configz"]),
            ("/exec/a/b/c", vec!["proxy"]),
            ("/", vec!["proxy"]),
        ] {
            assert_eq!(subresources(path), want, "{path}");
        }
    }
}
