//! The calls of CRI's two services, which the client and the server are made from.

/// Passes the table of all calls to a macro.
macro_rules! for_each_call {
    ($callback:ident) => {
        $callback! {
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
    };
}

pub(crate) use for_each_call;
