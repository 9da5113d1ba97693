//! GRPC on a unix socket: each call of CRI's table goes to the method of the same name.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body, server::Grpc};
use tonic_prost::ProstCodec;

use super::{
    RuntimeServer,
    image_archives::{IMAGE_PATH, serve_image_request},
};
use crate::cri::types::{calls::for_each_call, *};

/// The largest request.
const LARGEST_REQUEST: usize = 16 << 20;

/// Declares the function that finds a call by its path.
macro_rules! dispatcher {
    ($($(#[$doc:meta])* $client:ident of $service:literal {
        $($unary:ident: $method:ident($request:ident) -> $response:ident;)*
    } stream {
        $($streaming:ident: $stream_method:ident($stream_request:ident) -> $stream_response:ident;)*
    })*) => {
        async fn dispatch(server: Arc<RuntimeServer>, request: Request<Incoming>) -> Response<Body> {
            let path = request.uri().path();
            if path.starts_with(IMAGE_PATH) {
                return serve_image_request(server, request).await;
            }
            $(
                $(if path == concat!("/", $service, "/", stringify!($unary)) {
                    let call = tower::service_fn(move |request: tonic::Request<$request>| {
                        let server = server.clone();
                        async move { server.$method(request.into_inner()).await.map(tonic::Response::new) }
                    });
                    let codec = ProstCodec::<$response, $request>::default();
                    let mut grpc = Grpc::new(codec).max_decoding_message_size(LARGEST_REQUEST);
                    return grpc.unary(call, request).await;
                })*
                $(if path == concat!("/", $service, "/", stringify!($streaming)) {
                    let call = tower::service_fn(move |request: tonic::Request<$stream_request>| {
                        let server = server.clone();
                        async move { server.$stream_method(request.into_inner()).await.map(tonic::Response::new) }
                    });
                    let codec = ProstCodec::<$stream_response, $stream_request>::default();
                    let mut grpc = Grpc::new(codec).max_decoding_message_size(LARGEST_REQUEST);
                    return grpc.server_streaming(call, request).await;
                })*
            )*
            Status::unimplemented(format!("unknown method {path}")).into_http()
        }
    };
}

for_each_call!(dispatcher);

/// Serves CRI until `shutdown`.
pub async fn serve_cri(server: Arc<RuntimeServer>, listener: UnixListener, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(serve_connection(server.clone(), stream, shutdown.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "container runtime: accept failed, retrying");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            },
        }
    }
}

async fn serve_connection(server: Arc<RuntimeServer>, stream: UnixStream, shutdown: CancellationToken) {
    let service = hyper::service::service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(dispatch(server, request).await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(1000)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = connection => if let Err(error) = ended {
            tracing::debug!(%error, "container runtime: connection failed");
        },
        () = shutdown.cancelled() => {}
    }
}
