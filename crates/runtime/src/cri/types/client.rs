//! Clients of CRI's two services: one method per call.

use tonic::{
    Request, Response, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Error},
};
use tonic_prost::ProstCodec;

use super::*;

/// Declares a client with a method for each unary and each streaming call of a service.
macro_rules! clients {
    ($($(#[$doc:meta])* $client:ident of $service:literal {
        $($unary:ident: $method:ident($request:ident) -> $response:ident;)*
    } stream {
        $($streaming:ident: $stream_method:ident($stream_request:ident) -> $stream_response:ident;)*
    })*) => { $(
        $(#[$doc])*
        pub struct $client(Grpc<Channel>);

        impl $client {
            /// A client on `channel` that accepts responses of at most `max_message` bytes.
            pub fn new(channel: Channel, max_message: usize) -> Self {
                Self(Grpc::new(channel).max_decoding_message_size(max_message))
            }

            $(pub async fn $method(&mut self, request: $request) -> Result<Response<$response>, Status> {
                let path = PathAndQuery::from_static(concat!("/", $service, "/", stringify!($unary)));
                self.0.ready().await.map_err(unavailable)?;
                self.0.unary(Request::new(request), path, ProstCodec::default()).await
            })*

            $(pub async fn $stream_method(
                &mut self,
                request: $stream_request,
            ) -> Result<Response<Streaming<$stream_response>>, Status> {
                let path = PathAndQuery::from_static(concat!("/", $service, "/", stringify!($streaming)));
                self.0.ready().await.map_err(unavailable)?;
                self.0.server_streaming(Request::new(request), path, ProstCodec::default()).await
            })*
        }
    )* };
}

/// The status of a call for which there is no connection.
fn unavailable(error: Error) -> Status {
    Status::unavailable(format!("service was not ready: {error}"))
}

clients! {
    /// Calls about pod sandboxes and containers.
    RuntimeServiceClient of "runtime.v1.RuntimeService" {
        Version: version(VersionRequest) -> VersionResponse;
        RunPodSandbox: run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
        StopPodSandbox: stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse;
        RemovePodSandbox: remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse;
        PodSandboxStatus: pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
        ListPodSandbox: list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
        CreateContainer: create_container(CreateContainerRequest) -> CreateContainerResponse;
        StartContainer: start_container(StartContainerRequest) -> StartContainerResponse;
        StopContainer: stop_container(StopContainerRequest) -> StopContainerResponse;
        RemoveContainer: remove_container(RemoveContainerRequest) -> RemoveContainerResponse;
        ListContainers: list_containers(ListContainersRequest) -> ListContainersResponse;
        ContainerStatus: container_status(ContainerStatusRequest) -> ContainerStatusResponse;
        UpdateContainerResources: update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse;
        ReopenContainerLog: reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse;
        ExecSync: exec_sync(ExecSyncRequest) -> ExecSyncResponse;
        Exec: exec(ExecRequest) -> ExecResponse;
        Attach: attach(AttachRequest) -> AttachResponse;
        PortForward: port_forward(PortForwardRequest) -> PortForwardResponse;
        ContainerStats: container_stats(ContainerStatsRequest) -> ContainerStatsResponse;
        ListContainerStats: list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse;
        PodSandboxStats: pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse;
        ListPodSandboxStats: list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse;
        UpdateRuntimeConfig: update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse;
        Status: status(StatusRequest) -> StatusResponse;
        CheckpointContainer: checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse;
        ListMetricDescriptors: list_metric_descriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse;
        ListPodSandboxMetrics: list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse;
        RuntimeConfig: runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse;
        UpdatePodSandboxResources: update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse;
    } stream {
        StreamPodSandboxes: stream_pod_sandboxes(StreamPodSandboxesRequest) -> StreamPodSandboxesResponse;
        StreamContainers: stream_containers(StreamContainersRequest) -> StreamContainersResponse;
        StreamContainerStats: stream_container_stats(StreamContainerStatsRequest) -> StreamContainerStatsResponse;
        StreamPodSandboxStats: stream_pod_sandbox_stats(StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsResponse;
        GetContainerEvents: get_container_events(GetEventsRequest) -> ContainerEventResponse;
        StreamPodSandboxMetrics: stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse;
    }
    /// Calls about images.
    ImageServiceClient of "runtime.v1.ImageService" {
        ListImages: list_images(ListImagesRequest) -> ListImagesResponse;
        ImageStatus: image_status(ImageStatusRequest) -> ImageStatusResponse;
        PullImage: pull_image(PullImageRequest) -> PullImageResponse;
        RemoveImage: remove_image(RemoveImageRequest) -> RemoveImageResponse;
        ImageFsInfo: image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse;
    } stream {
        StreamImages: stream_images(StreamImagesRequest) -> StreamImagesResponse;
    }
}
