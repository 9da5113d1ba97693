//! A panic in one request is contained.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use apiserver_core::User;
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Empty};
use tower::ServiceExt;

use crate::{ServerOptions, fixture};

/// A request body whose first read panics.
struct PanickingBody;

impl http_body::Body for PanickingBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        assert!(::panics::is_contained(), "a panic hook must leave the process running");
        panic!("a bug");
    }
}

#[tokio::test]
async fn panic_in_a_request_is_answered_with_500_and_counted() {
    let (server, _dir) = fixture::start_server(ServerOptions::default()).await;
    let admin = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    let service = server.local_service(admin);
    let path = "/api/v1/namespaces/default/configmaps";
    let response = service.clone().oneshot(Request::post(path).body(PanickingBody).unwrap()).await.unwrap();
    assert_eq!(response.status(), 500);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "This request caused apiserver to panic. Look in the logs for details.\n");
    assert!(::panics::panic_counts()["apiserver"] >= 1);
    let next = service.oneshot(Request::get(path).body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(next.status(), 200);
}
