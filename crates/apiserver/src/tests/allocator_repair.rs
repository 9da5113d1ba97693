//! Repair of allocated addresses and node ports.

use apiserver_core::loopback::{LoopbackClient, ObjectKey};
use registry::allocate::{addresses, ports::Wish, repair::repair};

use crate::{Settings, fixture};

#[tokio::test]
async fn ports_that_nobody_has_are_given_back_at_the_second_look() {
    let (server, _dir) = fixture::server(Settings::default()).await;
    let registry = server.registry();
    let ports = &registry.pools().ports;
    ports.take(registry, &[Wish::Port(30001)]).await.unwrap();
    let suspects = repair(registry, &[]).await.unwrap();
    assert_eq!((suspects.as_slice(), ports.taken(registry).await.unwrap()), (&[30001][..], vec![30001]));
    assert_eq!(repair(registry, &suspects).await.unwrap(), [30001]);
    assert!(ports.taken(registry).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_services_have_is_written_down_again() {
    let (server, _dir) = fixture::server(Settings { kubernetes_node_port: Some(30443), ..Default::default() }).await;
    let registry = server.registry();
    addresses::release(registry, "10.96.0.1".parse().unwrap()).await.unwrap();
    registry.pools().ports.release(registry, &[30443]).await.unwrap();
    repair(registry, &[]).await.unwrap();
    let place = ObjectKey { resource: addresses::resource().unwrap(), namespace: "", name: "10.96.0.1" };
    let address = LoopbackClient::new(&**registry).read(place).await.unwrap().unwrap();
    assert_eq!(address["spec"]["parentRef"]["name"], "kubernetes");
    assert_eq!(registry.pools().ports.taken(registry).await.unwrap(), [30443]);
}

#[tokio::test]
async fn addresses_of_services_in_the_making_are_left_alone() {
    let (server, _dir) = fixture::server(Settings::default()).await;
    let service = serde_json::json!({"metadata": {"name": "soon", "namespace": "default"}});
    let ip = "10.96.0.9".parse().unwrap();
    addresses::take(server.registry(), &service, ip, false).await.unwrap_or_else(|error| panic!("{error}"));
    repair(server.registry(), &[]).await.unwrap();
    let place = ObjectKey { resource: addresses::resource().unwrap(), namespace: "", name: "10.96.0.9" };
    assert!(LoopbackClient::new(&**server.registry()).read(place).await.unwrap().is_some());
}
