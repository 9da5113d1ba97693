//! `/run` and `/checkpoint`: calls on one container, for clients that may use the node.

use std::time::Duration;

use http::{Response, StatusCode, header};
use runtime::cri::types::CheckpointContainerRequest;
use serde_json::json;
use transport::query::Query;

use crate::{
    context::{self, KubeletContext},
    http_handler::{ResponseBody, number_parameter, text_response},
    runtime_status::PodRuntimeStatus,
};

/// Time that a command may take.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// Finds the id of a running container, or says why there is none.
async fn find_running_container(
    kubelet: &KubeletContext,
    [namespace, name, container]: [&str; 3],
) -> Result<String, Response<ResponseBody>> {
    let missing = |what: &str| text_response(StatusCode::NOT_FOUND, what);
    let pod = kubelet.pods.get(namespace, name).ok_or_else(|| missing("pod does not exist"))?;
    let status = PodRuntimeStatus::fetch(&kubelet.cri, context::pod_uid(&pod)).await;
    let status = status.map_err(|error| text_response(StatusCode::INTERNAL_SERVER_ERROR, &error.message()))?;
    let running = status.latest_container(container).filter(|record| record.is_running());
    running.map(|record| record.status.id.clone()).ok_or_else(|| missing(&format!("container {container:?} not found")))
}

/// Runs the command of the query parameter `cmd` and answers with its output.
pub async fn run_in_container(kubelet: &KubeletContext, of: [&str; 3], query: &Query) -> Response<ResponseBody> {
    let id = match find_running_container(kubelet, of).await {
        Ok(id) => id,
        Err(response) => return response,
    };
    let command = query.get("cmd").unwrap_or_default().split(' ').map(String::from).collect();
    match kubelet.cri.exec_sync(&id, command, RUN_TIMEOUT).await {
        Ok(output) => {
            let bytes = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&bytes);
            match output.exit_code {
                0 => text_response(StatusCode::OK, &text),
                code => {
                    let message = format!("command exited with {code}: {text}");
                    text_response(StatusCode::INTERNAL_SERVER_ERROR, &message)
                }
            }
        }
        Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, &error.message()),
    }
}

/// Writes a checkpoint of a container to the kubelet's directory and answers with its path.
pub async fn checkpoint_container(kubelet: &KubeletContext, of: [&str; 3], query: &Query) -> Response<ResponseBody> {
    let timeout = match number_parameter(query, "timeout") {
        Ok(timeout) => timeout.unwrap_or_default(),
        Err(error) => return text_response(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let id = match find_running_container(kubelet, of).await {
        Ok(id) => id,
        Err(response) => return response,
    };
    let dir = kubelet.root_dir.join("checkpoints");
    if let Err(error) = tokio::fs::create_dir_all(&dir).await {
        return text_response(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
    }
    let [namespace, pod, container] = of;
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let path = dir.join(format!("checkpoint-{pod}_{namespace}-{container}-{time}.tar"));
    let location = path.display().to_string();
    let request = CheckpointContainerRequest {
        container_id: id,
        location: location.clone(),
        timeout: i64::try_from(timeout).unwrap_or(i64::MAX),
    };
    match kubelet.cri.checkpoint_container(request).await {
        Ok(()) => {
            let mut response = text_response(StatusCode::OK, &json!({ "items": [location] }).to_string());
            response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            let [namespace, pod, container] = of;
            let message = format!("checkpointing of {namespace}/{pod}/{container} failed ({})", error.message());
            text_response(StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
    }
}
