//! Clients of CRI's two services: one method per call.

use tonic::{
    Request, Response, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Error},
};
use tonic_prost::ProstCodec;

use super::{calls::for_each_call, *};

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

for_each_call!(clients);
