//! Extenders: webhooks that filter, score, preempt and bind beside the plug-ins.

use std::{path::Path, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;

use crate::{
    candidate::Candidate,
    config::{ConfigError, ExtenderConfig, ExtenderTlsConfig},
    framework::{extension_points::MAX_NODE_SCORE, status::Status},
    snapshot::Snapshot,
    views::node_info::NodeInfo,
    views::pod_info::PodInfo,
};

/// The greatest score of an extender.
const MAX_EXTENDER_PRIORITY: i64 = 10;

/// A failed call.
#[derive(Debug, thiserror::Error)]
enum ExtenderError {
    /// No answer.
    #[error("{0}")]
    Transport(#[from] kube::Error),
    /// No answer in time.
    #[error("Post {url:?}: context deadline exceeded")]
    Timeout { url: String },
    /// Not the status 200.
    #[error("failed {action} with extender at URL {url}, code {code}")]
    Code { action: String, url: String, code: u16 },
    /// An answer that is not what was asked for.
    #[error("{0}")]
    Answer(String),
    /// An error that the extender reports.
    #[error("{0}")]
    Reported(String),
}

/// The nodes that are left, and why others are not.
type FilterResult = (Vec<Arc<NodeInfo>>, Vec<(String, Status)>);

/// One extender.
struct HttpExtender {
    config: ExtenderConfig,
    client: Client,
    timeout: Duration,
}

/// The extenders of the configuration, in order.
#[derive(Default)]
pub struct Extenders {
    extenders: Vec<HttpExtender>,
    runtime: Option<Handle>,
}

impl Extenders {
    /// Prepares clients.
    pub fn new(configs: &[ExtenderConfig]) -> Result<Self, ConfigError> {
        let extenders = configs.iter().map(HttpExtender::new).collect::<Result<_, _>>()?;
        Ok(Self { extenders, runtime: Some(Handle::current()) })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.extenders.is_empty()
    }

    /// Whether one filters.
    pub fn is_filter(&self) -> bool {
        self.extenders.iter().any(|extender| !extender.config.filter_verb.is_empty())
    }

    /// Whether one scores.
    pub fn is_prioritizer(&self) -> bool {
        self.extenders.iter().any(|extender| !extender.config.prioritize_verb.is_empty())
    }

    /// Lets the extenders filter nodes. Returns those that are left, and why others are not.
    pub fn filter_nodes(&self, pod: &PodInfo, mut nodes: Vec<Arc<NodeInfo>>) -> Result<FilterResult, Status> {
        let mut failed = Vec::new();
        for extender in self.interested_in(pod) {
            if nodes.is_empty() {
                break;
            }
            if extender.config.filter_verb.is_empty() {
                continue;
            }
            match self.wait(extender.filter(pod, &nodes)) {
                Ok((left, reasons)) => {
                    nodes = left;
                    failed.extend(reasons);
                }
                Err(error) if extender.config.ignorable => {
                    tracing::info!(extender = extender.config.url_prefix, %error, "extender: failed, ignored");
                }
                Err(error) => return Err(Status::error(error)),
            }
        }
        Ok((nodes, failed))
    }

    /// Adds the extenders' scores; an extender that fails gives none.
    pub fn add_scores(&self, pod: &PodInfo, nodes: &[Arc<NodeInfo>], totals: &mut [i64]) {
        for extender in self.interested_in(pod).filter(|extender| !extender.config.prioritize_verb.is_empty()) {
            match self.wait(extender.prioritize(pod, nodes)) {
                Ok(scores) => {
                    for (host, score) in scores {
                        let place = nodes.iter().position(|node| **node.name() == *host);
                        if let Some(total) = place.and_then(|place| totals.get_mut(place)) {
                            *total += score * extender.config.weight * (MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY);
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(extender = extender.config.url_prefix, %error, "extender: no scores");
                }
            }
        }
    }

    /// Lets the extenders choose between candidates and victims of preemption.
    pub fn process_preemption(
        &self,
        pod: &PodInfo,
        mut candidates: Vec<Candidate>,
        snapshot: &Snapshot,
    ) -> Result<Vec<Candidate>, Status> {
        for extender in self.interested_in(pod).filter(|extender| !extender.config.preempt_verb.is_empty()) {
            if candidates.is_empty() {
                break;
            }
            match self.wait(extender.preempt(pod, &candidates, snapshot)) {
                Ok(mut left) => {
                    let empty = left.iter().position(|candidate| candidate.victims.is_empty());
                    match empty.and_then(|place| left.get(place)) {
                        Some(candidate) if !extender.config.ignorable => {
                            let message = format!("expected at least one victim pod on node {:?}", candidate.node);
                            return Err(Status::error(message));
                        }
                        _ => left.retain(|candidate| !candidate.victims.is_empty()),
                    }
                    candidates = left;
                }
                Err(error) if extender.config.ignorable => {
                    tracing::info!(extender = extender.config.url_prefix, %error, "extender: failed, ignored");
                }
                Err(error) => return Err(Status::error(error)),
            }
        }
        Ok(candidates)
    }

    /// Lets the first extender that binds do so; `None` if there is none.
    pub fn bind_pod<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> BoxFuture<'a, Option<Result<(), Status>>> {
        Box::pin(async move {
            for extender in self.interested_in(pod).filter(|extender| !extender.config.bind_verb.is_empty()) {
                match extender.bind(pod, node).await {
                    Err(error) if extender.config.ignorable => {
                        tracing::info!(extender = extender.config.url_prefix, %error, "extender: failed, ignored");
                    }
                    result => return Some(result.map_err(Status::error)),
                }
            }
            None
        })
    }

    fn interested_in<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = &'a HttpExtender> {
        self.extenders.iter().filter(|extender| extender.is_interested(pod))
    }

    /// Waits for an answer on the scheduling thread, as the cycle cannot go on without it.
    fn wait<T>(&self, call: impl Future<Output = Result<T, ExtenderError>>) -> Result<T, ExtenderError> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(call),
            None => Err(ExtenderError::Answer("no runtime".into())),
        }
    }
}

impl HttpExtender {
    fn new(config: &ExtenderConfig) -> Result<Self, ConfigError> {
        let invalid =
            |error: &dyn std::fmt::Display| ConfigError::Invalid(format!("extender {}: {error}", config.url_prefix));
        let url = config.url_prefix.parse().map_err(|error: http::uri::InvalidUri| invalid(&error))?;
        let mut transport = kube::Config::new(url);
        transport.read_timeout = None;
        let tls = config.tls_config.clone().unwrap_or_default();
        set_tls(&mut transport, &tls, config.enable_https).map_err(|error| invalid(&error))?;
        let client = Client::try_from(transport).map_err(|error| invalid(&error))?;
        let timeout = config.http_timeout();
        Ok(Self { config: config.clone(), client, timeout })
    }

    fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.config.managed_resources;
        let requests = pod.object.iter().flat_map(|pod| pod.spec.iter()).flat_map(|spec| {
            let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            containers.flat_map(|container| {
                let resources = container.resources.iter();
                resources.flat_map(|all| all.requests.iter().chain(&all.limits).flat_map(|list| list.keys()))
            })
        });
        managed.is_empty() || requests.into_iter().any(|name| managed.iter().any(|managed| managed.name == *name))
    }

    fn node_args(&self, pod: &PodInfo, nodes: &[Arc<NodeInfo>]) -> Value {
        if self.config.node_cache_capable {
            let names: Vec<&str> = nodes.iter().map(|node| node.name().as_ref()).collect();
            return json!({"Pod": pod.object.as_deref(), "Nodes": null, "NodeNames": names});
        }
        let items: Vec<_> = nodes.iter().filter_map(|node| node.node.object.as_deref()).collect();
        json!({"Pod": pod.object.as_deref(), "Nodes": {"metadata": {}, "items": items}, "NodeNames": null})
    }

    async fn filter(&self, pod: &PodInfo, nodes: &[Arc<NodeInfo>]) -> Result<FilterResult, ExtenderError> {
        let result = self.send(&self.config.filter_verb, self.node_args(pod, nodes)).await?;
        if let Some(error) = field(&result, "error").and_then(Value::as_str).filter(|error| !error.is_empty()) {
            return Err(ExtenderError::Reported(error.into()));
        }
        let by_name = field(&result, "nodenames").and_then(Value::as_array);
        let names: Vec<String> = match by_name.filter(|_| self.config.node_cache_capable) {
            Some(names) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            None => {
                let items = field(&result, "nodes").and_then(|nodes| field(nodes, "items")).and_then(Value::as_array);
                let name = |item: &Value| item["metadata"]["name"].as_str().map(str::to_owned);
                items.into_iter().flatten().filter_map(name).collect()
            }
        };
        let find = |name: &String| {
            nodes.iter().find(|node| **node.name() == **name).cloned().ok_or_else(|| {
                ExtenderError::Answer(format!(
                    "extender {:?} claims a filtered node {name:?} which is not found in the input node list",
                    self.config.url_prefix
                ))
            })
        };
        let left = names.iter().map(find).collect::<Result<_, _>>()?;
        let unresolvable = messages(&result, "failedandunresolvablenodes");
        let failed = messages(&result, "failednodes");
        let failed = failed.into_iter().filter(|(name, _)| !unresolvable.iter().any(|(other, _)| other == name));
        let failed: Vec<_> = failed.map(|(name, message)| (name, Status::unschedulable(message))).collect();
        let unresolvable = unresolvable.into_iter().map(|(name, message)| (name, Status::unresolvable(message)));
        Ok((left, unresolvable.chain(failed).collect()))
    }

    async fn prioritize(&self, pod: &PodInfo, nodes: &[Arc<NodeInfo>]) -> Result<Vec<(String, i64)>, ExtenderError> {
        let result = self.send(&self.config.prioritize_verb, self.node_args(pod, nodes)).await?;
        let score = |entry: &Value| {
            let host = field(entry, "host")?.as_str()?.to_owned();
            Some((host, field(entry, "score").and_then(Value::as_i64).unwrap_or(0)))
        };
        Ok(result.as_array().into_iter().flatten().filter_map(score).collect())
    }

    async fn preempt(
        &self,
        pod: &PodInfo,
        candidates: &[Candidate],
        snapshot: &Snapshot,
    ) -> Result<Vec<Candidate>, ExtenderError> {
        let by_uid = self.config.node_cache_capable;
        let victims = |candidate: &Candidate| {
            let pods = candidate.victims.iter();
            let pods: Vec<Value> = match by_uid {
                true => pods.map(|pod| json!({"UID": *pod.uid})).collect(),
                false => pods.map(|pod| json!(pod.object.as_deref())).collect(),
            };
            (candidate.node.to_string(), json!({"Pods": pods, "NumPDBViolations": candidate.violations}))
        };
        let victims: Map<String, Value> = candidates.iter().map(victims).collect();
        let field_name = if by_uid { "NodeNameToMetaVictims" } else { "NodeNameToVictims" };
        let result =
            self.send(&self.config.preempt_verb, json!({"Pod": pod.object.as_deref(), field_name: victims})).await?;
        let chosen = field(&result, "nodenametometavictims").and_then(Value::as_object);
        chosen.into_iter().flatten().map(|(node, victims)| self.chosen_candidate(node, victims, snapshot)).collect()
    }

    fn chosen_candidate(&self, name: &str, chosen: &Value, snapshot: &Snapshot) -> Result<Candidate, ExtenderError> {
        let unknown = || ExtenderError::Answer(format!("nodeinfo not found for node name {name:?}"));
        let node = snapshot.get(name).ok_or_else(unknown)?;
        let pods = field(chosen, "pods").and_then(Value::as_array).into_iter().flatten();
        let victims = pods.map(|pod| {
            let uid = field(pod, "uid").and_then(Value::as_str).unwrap_or("");
            node.pods.iter().find(|known| *known.uid == *uid).cloned().ok_or_else(|| {
                ExtenderError::Answer(format!(
                    "extender: {} claims to preempt pod (UID: {uid}) on node: {name}, but the pod is not found on that node",
                    self.config.url_prefix
                ))
            })
        });
        let victims = victims.collect::<Result<_, _>>()?;
        let violations = field(chosen, "numpdbviolations").and_then(Value::as_u64).unwrap_or(0);
        Ok(Candidate { node: node.name().clone(), victims, violations: usize::try_from(violations).unwrap_or(0) })
    }

    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<(), ExtenderError> {
        let args = json!({"PodName": pod.name, "PodNamespace": *pod.class.namespace, "PodUID": *pod.uid, "Node": node});
        let result = self.send(&self.config.bind_verb, args).await?;
        match field(&result, "error").and_then(Value::as_str).filter(|error| !error.is_empty()) {
            Some(error) => Err(ExtenderError::Reported(error.into())),
            None => Ok(()),
        }
    }

    async fn send(&self, action: &str, args: Value) -> Result<Value, ExtenderError> {
        let url = format!("{}/{action}", self.config.url_prefix.trim_end_matches('/'));
        let call = async {
            let request = http::Request::post(format!("/{action}"))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(Body::from(args.to_string().into_bytes()))
                .map_err(|error| ExtenderError::Answer(error.to_string()))?;
            let response = self.client.send(request).await?;
            let code = response.status().as_u16();
            if code != 200 {
                return Err(ExtenderError::Code { action: action.into(), url: url.clone(), code });
            }
            let body = response.into_body().collect().await?.to_bytes();
            serde_json::from_slice(&body).map_err(|error| ExtenderError::Answer(error.to_string()))
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result,
            Err(_) => Err(ExtenderError::Timeout { url: url.clone() }),
        }
    }
}

/// Returns a field by its lower-case name; like Go, the case of the names in the answer does not matter.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn messages(result: &Value, name: &str) -> Vec<(String, String)> {
    let entries = field(result, name).and_then(Value::as_object).into_iter().flatten();
    entries.map(|(node, message)| (node.clone(), message.as_str().unwrap_or("").to_owned())).collect()
}

fn set_tls(config: &mut kube::Config, tls: &ExtenderTlsConfig, is_https: bool) -> Result<(), String> {
    let data = |inline: &str, file: &str| -> Result<Option<Vec<u8>>, String> {
        match (inline, file) {
            ("", "") => Ok(None),
            ("", file) => std::fs::read(Path::new(file)).map(Some).map_err(|error| format!("{file}: {error}")),
            (inline, _) => BASE64.decode(inline).map(Some).map_err(|error| error.to_string()),
        }
    };
    let ca = data(&tls.ca_data, &tls.ca_file)?;
    config.accept_invalid_certs = tls.insecure || is_https && ca.is_none();
    if let Some(pem) = ca {
        let certificates = CertificateDer::pem_slice_iter(&pem).map(|certificate| Ok(certificate?.to_vec()));
        let certificates: Result<Vec<_>, rustls::pki_types::pem::Error> = certificates.collect();
        config.root_cert = Some(certificates.map_err(|error| error.to_string())?);
    }
    if !tls.server_name.is_empty() {
        config.tls_server_name = Some(tls.server_name.clone());
    }
    let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    config.auth_info.client_certificate = set(&tls.cert_file);
    config.auth_info.client_certificate_data = set(&tls.cert_data);
    config.auth_info.client_key = set(&tls.key_file);
    config.auth_info.client_key_data = set(&tls.key_data).map(Into::into);
    Ok(())
}
