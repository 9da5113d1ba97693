//! Authorization attributes of kubelet API requests: verbs on node subresources.

use http::Method;

/// Returns the API verb of an HTTP method.
pub fn request_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// Returns the node subresources of which one must be allowed: a fine-grained one for some paths, `proxy` for most.
pub fn node_subresources(path: &str) -> Vec<&'static str> {
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
    fn paths_map_to_node_subresources() {
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
            assert_eq!(node_subresources(path), want, "{path}");
        }
    }
}
