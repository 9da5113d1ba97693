//! A client of the calls of etcd's v3 API that the store makes.

use std::time::Duration;

use futures::{StreamExt, stream};
use prost::Message;
use tokio::sync::mpsc;
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::MetadataValue,
    transport::{Channel, ClientTlsConfig, Endpoint},
};
use tonic_prost::ProstCodec;

use super::messages::{
    CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, RangeRequest, RangeResponse,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchProgressRequest, WatchRequest,
    WatchRequestUnion, WatchResponse,
};

/// The largest message: a page of large documents.
const MAX_MESSAGE: usize = 1 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Progress requests that may wait to be sent.
const PROGRESS_REQUESTS: usize = 16;

/// A connection to each server of an etcd cluster; a call goes to one that is connected.
#[derive(Clone)]
pub(super) struct EtcdClient {
    channel: Channel,
}

impl EtcdClient {
    /// A client that connects at its first call. Fails where a server is not a URL, or the TLS files cannot be used.
    pub fn new(servers: &[String], tls: Option<ClientTlsConfig>) -> Result<Self, tonic::transport::Error> {
        let endpoints = servers.iter().map(|server| {
            let endpoint = Endpoint::from_shared(server.clone())?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .keep_alive_while_idle(true);
            match &tls {
                Some(tls) => endpoint.tls_config(tls.clone()),
                None => Ok(endpoint),
            }
        });
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { channel: Channel::balance_list(endpoints.into_iter()) })
    }

    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    pub async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, Status> {
        self.call("/etcdserverpb.KV/Compact", request).await
    }

    pub async fn grant_lease(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        self.call("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    pub async fn status(&self) -> Result<StatusResponse, Status> {
        self.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await
    }

    /// Opens a watch stream with one watch on it.
    pub async fn watch(&self, create: WatchCreateRequest) -> Result<WatchStream, Status> {
        let (progress, requests) = mpsc::channel(PROGRESS_REQUESTS);
        let create = stream::once(std::future::ready(WatchRequestUnion::Create(create)));
        let requests = stream::unfold(requests, |mut requests| async move { Some((requests.recv().await?, requests)) });
        let requests = create.chain(requests.map(WatchRequestUnion::Progress));
        let requests = requests.map(|request| WatchRequest { request_union: Some(request) });
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let responses = grpc.streaming(require_leader(requests), path, ProstCodec::default()).await?.into_inner();
        Ok(WatchStream { progress, responses })
    }

    async fn call<Q, R>(&self, path: &'static str, request: Q) -> Result<R, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(path);
        Ok(grpc.unary(require_leader(request), path, ProstCodec::default()).await?.into_inner())
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let grpc = Grpc::new(self.channel.clone());
        let mut grpc = grpc.max_encoding_message_size(MAX_MESSAGE).max_decoding_message_size(MAX_MESSAGE);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }
}

/// An open watch stream.
pub(super) struct WatchStream {
    progress: mpsc::Sender<WatchProgressRequest>,
    responses: Streaming<WatchResponse>,
}

impl WatchStream {
    /// The next response; `None` when the server ended the stream.
    pub async fn message(&mut self) -> Result<Option<WatchResponse>, Status> {
        self.responses.message().await
    }

    /// Asks the server to report the revision that the watch has reached; `false` if the stream has ended.
    pub async fn request_progress(&self) -> bool {
        self.progress.send(WatchProgressRequest {}).await.is_ok()
    }
}

/// A request that a server without a leader rejects.
fn require_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}
