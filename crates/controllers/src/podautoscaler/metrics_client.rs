//! Reads the metrics APIs: metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io.

use std::{collections::BTreeMap, time::Duration};

use client::ApiErrorExt;
use form_urlencoded::Serializer;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::CrossVersionObjectReference, apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use kube::Client;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    MetricsError,
    pod_requests::quantity_millis,
    replica_calculator::{PodMetric, PodMetrics},
};
use crate::scale_client::{ScaleClient, ScaleError, parse_group_version};

/// Window of custom metrics that do not state theirs.
const DEFAULT_WINDOW: Duration = Duration::from_secs(60);
/// Versions of custom.metrics.k8s.io that are understood, the best first.
const CUSTOM_METRICS_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// A list of metrics.
#[derive(Debug, Deserialize)]
struct MetricList<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

/// `PodMetrics` of metrics.k8s.io.
#[derive(Debug, Deserialize)]
struct ResourceMetrics {
    metadata: MetricsMetadata,
    timestamp: Timestamp,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Deserialize)]
struct MetricsMetadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, ApiQuantity>,
}

/// `MetricValue` of custom.metrics.k8s.io.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomMetric {
    described_object: DescribedObject,
    timestamp: Timestamp,
    /// Name of the field in v1beta2.
    window_seconds: Option<u64>,
    /// Name of the field in v1beta1.
    window: Option<u64>,
    value: ApiQuantity,
}

#[derive(Debug, Deserialize)]
struct DescribedObject {
    #[serde(default)]
    name: String,
}

/// `ExternalMetricValue` of external.metrics.k8s.io.
#[derive(Debug, Deserialize)]
struct ExternalMetric {
    value: ApiQuantity,
}

/// A request to a metrics API, and how client-go's messages call it.
struct MetricsRequest {
    path: String,
    query: Vec<(&'static str, String)>,
    /// Resource, group and name.
    target: String,
}

impl MetricsRequest {
    fn uri(&self) -> String {
        let mut query = Serializer::new(String::new());
        query.extend_pairs(self.query.iter().filter(|(_, value)| !value.is_empty()));
        format!("{}?{}", self.path, query.finish())
    }
}

/// Reads metrics.
pub(super) struct MetricsClient {
    client: Client,
}

impl MetricsClient {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Reads the usage of a resource by the selected pods, or by one of their containers.
    pub(super) async fn resource_metrics(
        &self,
        namespace: &str,
        selector: &str,
        resource: &str,
        container: Option<&str>,
    ) -> Result<PodMetrics, MetricsError> {
        let request = MetricsRequest {
            path: format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"),
            query: vec![("labelSelector", selector.into())],
            target: "pods.metrics.k8s.io".into(),
        };
        let list: MetricList<ResourceMetrics> = self.get(request, "resource").await?;
        if list.items.is_empty() {
            return Err(MetricsError("no metrics returned from resource metrics API".into()));
        }
        Ok(list
            .items
            .iter()
            .filter_map(|pod| Some((pod.metadata.name.clone(), pod_metric(pod, resource, container)?)))
            .collect())
    }

    /// Reads a custom metric of the selected pods.
    pub(super) async fn pods_metrics(
        &self,
        scales: &ScaleClient,
        namespace: &str,
        selector: &str,
        metric: (&str, &str),
    ) -> Result<PodMetrics, MetricsError> {
        let (name, metric_selector) = metric;
        let request = MetricsRequest {
            path: format!("{}/namespaces/{namespace}/pods/*/{name}", custom_metrics_path(scales).await?),
            query: vec![("labelSelector", selector.into()), ("metricLabelSelector", metric_selector.into())],
            target: "pods.custom.metrics.k8s.io *".into(),
        };
        let list: MetricList<CustomMetric> = self.get(request, "custom").await?;
        if list.items.is_empty() {
            return Err(MetricsError("no metrics returned from custom metrics API".into()));
        }
        let sample = |metric: &CustomMetric| {
            let window = metric.window_seconds.or(metric.window).map_or(DEFAULT_WINDOW, Duration::from_secs);
            Some(PodMetric { timestamp: metric.timestamp, window, value: quantity_millis(&metric.value)? })
        };
        Ok(list
            .items
            .iter()
            .filter_map(|metric| Some((metric.described_object.name.clone(), sample(metric)?)))
            .collect())
    }

    /// Reads a custom metric of one object, in thousandths.
    pub(super) async fn object_metric(
        &self,
        scales: &ScaleClient,
        namespace: &str,
        object: &CrossVersionObjectReference,
        metric: (&str, &str),
    ) -> Result<i64, MetricsError> {
        let (name, metric_selector) = metric;
        let root = custom_metrics_path(scales).await?;
        let (group, _) = parse_group_version(object.api_version.as_deref().unwrap_or("")).map_err(custom_error)?;
        let (path, target) = if object.kind == "Namespace" && group.is_empty() {
            (format!("{root}/namespaces/{namespace}/metrics/{name}"), format!("metrics.custom.metrics.k8s.io {name}"))
        } else {
            let resource = mapped_resource(scales, group, &object.kind).await.map_err(custom_error)?;
            let path = format!("{root}/namespaces/{namespace}/{resource}/{}/{name}", object.name);
            (path, format!("{resource}.custom.metrics.k8s.io {}", object.name))
        };
        let request = MetricsRequest { path, query: vec![("metricLabelSelector", metric_selector.into())], target };
        let list: MetricList<CustomMetric> = self.get(request, "custom").await?;
        match list.items.as_slice() {
            [metric] => Ok(quantity_millis(&metric.value).unwrap_or(0)),
            items => {
                let message = format!(
                    "the custom metrics API server returned {} results when we asked for exactly one",
                    items.len()
                );
                Err(custom_error(message))
            }
        }
    }

    /// Reads the values of an external metric, in thousandths, and adds them up.
    pub(super) async fn external_metric(
        &self,
        namespace: &str,
        name: &str,
        selector: &str,
    ) -> Result<i64, MetricsError> {
        let request = MetricsRequest {
            path: format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}"),
            query: vec![("labelSelector", selector.into())],
            target: format!("{name}.external.metrics.k8s.io"),
        };
        let list: MetricList<ExternalMetric> = self.get(request, "external").await?;
        if list.items.is_empty() {
            return Err(MetricsError("no metrics returned from external metrics API".into()));
        }
        let values = list.items.iter().filter_map(|metric| quantity_millis(&metric.value));
        Ok(values.fold(0, i64::saturating_add))
    }

    /// Sends a request to the `api` metrics API.
    async fn get<T: DeserializeOwned>(&self, request: MetricsRequest, api: &str) -> Result<T, MetricsError> {
        let context = format!("unable to fetch metrics from {api} metrics API");
        let http = Request::get(request.uri()).body(Vec::new());
        let http = http.map_err(|error| MetricsError(error.to_string()).context(&context))?;
        let response = self.client.request(http).await;
        response.map_err(|error| MetricsError(client_go_message(&error, &request.target)).context(&context))
    }
}

fn custom_error(error: impl ToString) -> MetricsError {
    MetricsError(error.to_string()).context("unable to fetch metrics from custom metrics API")
}

/// Returns the path of the best version of custom.metrics.k8s.io that is served.
async fn custom_metrics_path(scales: &ScaleClient) -> Result<String, MetricsError> {
    let served = scales.versions_of_group("custom.metrics.k8s.io").await.map_err(custom_error)?;
    if served.is_empty() {
        return Err(custom_error("no custom metrics API (custom.metrics.k8s.io) registered"));
    }
    let known = CUSTOM_METRICS_VERSIONS.iter().find(|version| served.iter().any(|served| served == *version));
    let version = known.ok_or_else(|| custom_error("no known available metric versions found"))?;
    Ok(format!("/apis/custom.metrics.k8s.io/{version}"))
}

/// Returns `plural.group` of a kind.
async fn mapped_resource(scales: &ScaleClient, group: &str, kind: &str) -> Result<String, MetricsError> {
    let group_kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let unmapped = |error: ScaleError| MetricsError(format!("unable to map kind {group_kind} to resource: {error}"));
    let resources = scales.resources_of_kind(group, kind).await.map_err(unmapped)?;
    let first = resources.first().map(|found| found.group_resource());
    let none = || ScaleError::NoMatch { kind: kind.into(), scope: format!("group {group:?}") };
    first.ok_or_else(|| unmapped(none()))
}

/// Returns the usage of a pod or one of its containers; `None` if a container has none.
fn pod_metric(pod: &ResourceMetrics, resource: &str, container: Option<&str>) -> Option<PodMetric> {
    let mut value = None;
    for one in pod.containers.iter().filter(|one| container.is_none_or(|name| name == one.name)) {
        let usage = quantity_millis(one.usage.get(resource)?)?;
        value = Some(value.unwrap_or(0i64).saturating_add(usage));
    }
    let window = api::duration::parse(&pod.window).and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or(0);
    Some(PodMetric { timestamp: pod.timestamp, window: Duration::from_nanos(window), value: value? })
}

/// Returns the message that client-go has for an error: its own where the response is not a `Status`.
fn client_go_message(error: &kube::Error, target: &str) -> String {
    let kube::Error::Api(status) = error else { return error.server_message() };
    if status.reason != "Failed to parse error data" {
        return status.message.clone();
    }
    let message = match status.code {
        401 => "the server has asked for the client to provide credentials".into(),
        403 => status.message.clone(),
        404 => "the server could not find the requested resource".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .into()
        }
        code if code >= 500 => {
            format!("an error on the server ({:?}) has prevented the request from succeeding", status.message)
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    };
    format!("{message} (get {target})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn usage_of_a_pod_needs_all_containers() {
        let pod: ResourceMetrics = serde_json::from_value(json!({"metadata": {"name": "p"},
            "timestamp": "2030-01-01T00:00:00Z", "window": "30.5s", "containers": [
                {"name": "a", "usage": {"cpu": "100m", "memory": "1Ki"}}, {"name": "b", "usage": {"cpu": "1500000n"}}]}))
        .unwrap();
        let check = |resource, container, expected: Option<i64>| {
            assert_eq!(pod_metric(&pod, resource, container).map(|metric| metric.value), expected);
        };
        check("cpu", None, Some(102));
        check("cpu", Some("b"), Some(2));
        check("memory", Some("a"), Some(1_024_000));
        check("memory", None, None);
        check("cpu", Some("x"), None);
        assert_eq!(pod_metric(&pod, "cpu", None).unwrap().window, Duration::from_millis(30_500));
    }

    #[test]
    fn plain_errors_get_client_go_messages() {
        let check = |text: &str, reason: &str, code, expected: &str| {
            let status = kube::core::Status::failure(text, reason).with_code(code);
            let error = kube::Error::Api(status.boxed());
            assert_eq!(client_go_message(&error, "pods.metrics.k8s.io"), expected);
        };
        let plain = "Failed to parse error data";
        let missing = "the server could not find the requested resource (get pods.metrics.k8s.io)";
        check("404 page not found", plain, 404, missing);
        let down = "the server is currently unable to handle the request (get pods.metrics.k8s.io)";
        check("service unavailable", plain, 503, down);
        check("pods is forbidden", "Forbidden", 403, "pods is forbidden");
    }
}
