//! `kubectl logs`

use std::time::Duration;

use api::{Value, json::go_quote};

use super::pod_selection::{
    annotated_container, best_logs_first, container_names, find_container, go_type, has_several_containers,
    invalid_container, list_pods, pod_running_timeout, pod_selector,
};
use crate::{
    errln,
    errors::{CommandError, CommandResult},
    object::{ObjectFields, name_of, namespace_of},
    output::{write_err, write_out, write_out_bytes},
    resource::ResourceBuilder,
    rest::{RestClient, RestRequest, block_on},
    session::Session,
    usage::usage_error,
};

const USAGE: &str = "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument \
                     for the logs command";

/// A container whose logs are read.
#[derive(Clone, Debug)]
struct LogSource {
    request: RestRequest,
    /// The prefix of each line, if any.
    prefix: String,
}

/// Prints the logs of containers.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let arguments = session.arguments();
    let selector = flags.string("selector");
    let mut container = flags.string("container");
    match arguments {
        [] if selector.is_empty() => return Err(usage_error(session, USAGE)),
        [_] if !selector.is_empty() => {
            return Err(usage_error(session, "only a selector (-l) or a POD name is allowed"));
        }
        [] | [_] => {}
        [_, inline] => container.clone_from(inline),
        _ => return Err(usage_error(session, USAGE)),
    }
    let mut builder = ResourceBuilder::from_session(session)?;
    let timeout = pod_running_timeout(session)?;
    let query = log_query(session)?;
    builder.single_type = true;
    if selector.is_empty() {
        builder.default_resource = "pods".to_owned();
        builder.arguments = vec![arguments[0].clone()];
    } else {
        builder.arguments = vec!["pods".to_owned()];
        builder.plain_types = true;
    }
    let namespace = builder.namespace.clone();
    let infos = builder.infos(session).map_err(|error| match error {
        error if error.is_not_found() => {
            CommandError::new(format!("error from server (NotFound): {error} in namespace {}", go_quote(&namespace)))
        }
        error => error,
    })?;
    let Some(info) = infos.first() else { crate::bail!("expected a resource") };
    if !selector.is_empty() && info.object.list("items").is_empty() {
        errln!("No resources found in {namespace} namespace.");
    }
    check_options(session, &container)?;
    let mut sources = Vec::new();
    let reader = LogReader { session, query, timeout, all_pods: flags.bool("all-pods") };
    reader.collect(&info.object, flags.bool("all-containers"), &container, &mut sources)?;
    consume(session, sources, timeout)
}

fn check_options(session: &Session, container: &str) -> CommandResult {
    let flags = &session.flags;
    let since = flags.duration("since");
    if !flags.string("since-time").is_empty() && since != 0 {
        crate::bail!("at most one of `sinceTime` or `sinceSeconds` may be specified");
    }
    if flags.bool("all-containers") && !container.is_empty() {
        crate::bail!("--all-containers=true should not be specified with container name {container}");
    }
    if flags.changed("container") && session.arguments().len() == 2 {
        crate::bail!("only one of -c or an inline [CONTAINER] arg is allowed");
    }
    if flags.int("limit-bytes") < 0 {
        crate::bail!("--limit-bytes must be greater than 0");
    }
    if since < 0 {
        crate::bail!("--since must be greater than 0");
    }
    if flags.int("tail") < -1 {
        crate::bail!("--tail must be greater than or equal to -1");
    }
    Ok(())
}

/// The parameters of the requests, without the container.
fn log_query(session: &Session) -> CommandResult<Vec<(String, String)>> {
    let flags = &session.flags;
    let mut query: Vec<(String, String)> = Vec::new();
    let named = [
        ("follow", "follow"),
        ("previous", "previous"),
        ("timestamps", "timestamps"),
        ("insecure-skip-tls-verify-backend", "insecureSkipTLSVerifyBackend"),
    ];
    for (flag, parameter) in named {
        if flags.bool(flag) {
            query.push((parameter.to_owned(), "true".to_owned()));
        }
    }
    let since_time = flags.string("since-time");
    if !since_time.is_empty() {
        let time: jiff::Timestamp = since_time.parse().map_err(|_| {
            CommandError::new(format!(
                "parsing time {0} as \"2006-01-02T15:04:05Z07:00\": cannot parse {0} as \"2006\"",
                go_quote(&since_time)
            ))
        })?;
        query.push(("sinceTime".to_owned(), time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    }
    if flags.int("limit-bytes") != 0 {
        query.push(("limitBytes".to_owned(), flags.int("limit-bytes").to_string()));
    }
    let since = flags.duration("since");
    if since != 0 {
        let half = if since < 0 { -500_000_000 } else { 500_000_000 };
        query.push(("sinceSeconds".to_owned(), (since.saturating_add(half) / 1_000_000_000).to_string()));
    }
    if !flags.string("selector").is_empty() && flags.int("tail") == -1 && !flags.changed("tail") {
        query.push(("tailLines".to_owned(), "10".to_owned()));
    } else if flags.int("tail") != -1 {
        query.push(("tailLines".to_owned(), flags.int("tail").to_string()));
    }
    Ok(query)
}

struct LogReader<'a> {
    session: &'a Session,
    query: Vec<(String, String)>,
    timeout: Duration,
    all_pods: bool,
}

impl LogReader<'_> {
    /// Collects the sources of an object: a list of pods, a pod, or something that has pods.
    fn collect(
        &self,
        object: &Value,
        all_containers: bool,
        container: &str,
        sources: &mut Vec<LogSource>,
    ) -> CommandResult {
        match object.text("kind") {
            "PodList" | "List" | "Table" => object
                .list("items")
                .iter()
                .try_for_each(|pod| self.collect_pod(pod, all_containers, container, sources)),
            "Pod" => self.collect_pod(object, all_containers, container, sources),
            _ => {
                let selector = pod_selector(object).map_err(|error| {
                    CommandError::new(format!("cannot get the logs from {}: {error}", go_type(object)))
                })?;
                let client = self.session.client()?;
                let pods = list_pods(client, namespace_of(object), &selector, self.timeout, best_logs_first)?;
                let chosen = if self.all_pods { pods.len() } else { 1 };
                if pods.len() > 1 && !self.all_pods {
                    errln!("Found {} pods, using pod/{}", pods.len(), name_of(&pods[0]));
                }
                pods.iter().take(chosen).try_for_each(|pod| self.collect_pod(pod, all_containers, container, sources))
            }
        }
    }

    fn collect_pod(
        &self,
        pod: &Value,
        all_containers: bool,
        container: &str,
        sources: &mut Vec<LogSource>,
    ) -> CommandResult {
        if all_containers {
            for list in ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"] {
                sources.extend(pod.list(list).iter().map(|container| self.source(pod, container.text("name"))));
            }
            return Ok(());
        }
        let name = if container.is_empty() { self.default_container(pod) } else { container.to_owned() };
        if find_container(pod, &name).is_none() {
            return Err(invalid_container(pod, &name));
        }
        sources.push(self.source(pod, &name));
        Ok(())
    }

    fn default_container(&self, pod: &Value) -> String {
        let annotated = annotated_container(pod);
        if !annotated.is_empty() {
            if find_container(pod, annotated).is_some() {
                return annotated.to_owned();
            }
            errln!("Default container name {} not found in pod {}", go_quote(annotated), name_of(pod));
        }
        let first = pod.list("spec.containers").first().map(|container| container.text("name")).unwrap_or_default();
        if has_several_containers(pod) && !self.all_pods {
            errln!("Defaulted container {} out of: {}", go_quote(first), container_names(pod));
        }
        first.to_owned()
    }

    fn source(&self, pod: &Value, container: &str) -> LogSource {
        let flags = &self.session.flags;
        let with_prefix = flags.bool("prefix") || self.all_pods;
        let prefix = if with_prefix { format!("[pod/{}/{container}] ", name_of(pod)) } else { String::new() };
        LogSource { request: log_request(pod, container, &self.query), prefix }
    }
}

/// The request for the log of a container.
fn log_request(pod: &Value, container: &str, query: &[(String, String)]) -> RestRequest {
    let path = format!("/api/v1/namespaces/{}/pods/{}/log", namespace_of(pod), name_of(pod));
    let mut request = RestRequest::get(path).accepting("application/json, */*").with_query("container", container);
    request.query.extend(query.iter().cloned());
    request
}

/// Prints the whole log of a container.
pub fn print_log(session: &Session, pod: &Value, container: &str) -> CommandResult {
    let source = LogSource { request: log_request(pod, container, &[]), prefix: String::new() };
    block_on(copy_log(session.client()?, &source))
}

fn consume(session: &Session, sources: Vec<LogSource>, timeout: Duration) -> CommandResult {
    let flags = &session.flags;
    let follow = flags.bool("follow");
    let limit = flags.int("max-log-requests");
    if follow && sources.len() > 1 && sources.len() as i64 > limit {
        crate::bail!(
            "you are attempting to follow {} log streams, but maximum allowed concurrency is {limit}, use \
             --max-log-requests to increase the limit",
            sources.len()
        );
    }
    let client = session.client()?;
    let ignore = flags.bool("ignore-errors");
    block_on(async {
        if follow && sources.len() > 1 {
            let all = sources.iter().map(|source| follow_log(client, source, ignore, timeout));
            return futures::future::try_join_all(all).await.map(drop);
        }
        for source in &sources {
            if follow {
                follow_log(client, source, ignore, timeout).await?;
                continue;
            }
            match copy_log(client, source).await {
                Err(error) if ignore => write_out(&format!("error: {error}\n")),
                outcome => outcome?,
            }
        }
        Ok(())
    })
}

/// Follows a log; errors of the server are tried again until the timeout.
async fn follow_log(client: &RestClient, source: &LogSource, ignore: bool, timeout: Duration) -> CommandResult {
    let deadline = tokio::time::Instant::now() + timeout;
    loop {
        let error = match copy_log(client, source).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if ignore {
            write_out(&format!("error: {error}\n"));
            return Ok(());
        }
        write_err(&format!("{error}\n"));
        if !matches!(error, CommandError::Status(_)) {
            return Err(error);
        }
        let next = tokio::time::Instant::now() + Duration::from_secs(1);
        if next > deadline {
            crate::bail!("context deadline exceeded");
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Copies a log line by line, so that those of several containers do not mix within a line.
async fn copy_log(client: &RestClient, source: &LogSource) -> CommandResult {
    let mut stream = client.open_stream_async(source.request.clone()).await?;
    while let Some(line) = stream.next_log_line().await? {
        write_out_bytes(&[source.prefix.as_bytes(), &line].concat());
    }
    Ok(())
}
