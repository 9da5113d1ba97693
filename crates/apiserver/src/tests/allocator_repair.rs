//! Repair of allocated addresses and node ports.

use apiserver_core::loopback::{LoopbackClient, ObjectKey};
use registry::allocate::{ip_addresses, node_port_allocator::PortRequest, repair::repair_allocations};

use crate::{ServerOptions, fixture};

#[tokio::test]
async fn ports_that_nobody_has_are_given_back_at_the_second_look() {
    let (server, _dir) = fixture::start_server(ServerOptions::default()).await;
    let registry = server.registry();
    let ports = &registry.pools().ports;
    ports.allocate_ports(registry, &[PortRequest::Port(30001)]).await.unwrap();
    let suspects = repair_allocations(registry, &[]).await.unwrap();
    assert_eq!((suspects.as_slice(), ports.allocated_ports(registry).await.unwrap()), (&[30001][..], vec![30001]));
    assert_eq!(repair_allocations(registry, &suspects).await.unwrap(), [30001]);
    assert!(ports.allocated_ports(registry).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_services_have_is_written_down_again() {
    let (server, _dir) =
        fixture::start_server(ServerOptions { kubernetes_node_port: Some(30443), ..Default::default() }).await;
    let registry = server.registry();
    ip_addresses::release_address(registry, "10.96.0.1".parse().unwrap()).await.unwrap();
    registry.pools().ports.release_ports(registry, &[30443]).await.unwrap();
    repair_allocations(registry, &[]).await.unwrap();
    let place = ObjectKey { resource: ip_addresses::ip_address_resource().unwrap(), namespace: "", name: "10.96.0.1" };
    let address = LoopbackClient::new(&**registry).read_object(place).await.unwrap().unwrap();
    assert_eq!(address["spec"]["parentRef"]["name"], "kubernetes");
    assert_eq!(registry.pools().ports.allocated_ports(registry).await.unwrap(), [30443]);
}

#[tokio::test]
async fn addresses_of_services_in_the_making_are_left_alone() {
    let (server, _dir) = fixture::start_server(ServerOptions::default()).await;
    let service = serde_json::json!({"metadata": {"name": "soon", "namespace": "default"}});
    let ip = "10.96.0.9".parse().unwrap();
    ip_addresses::allocate_address(server.registry(), &service, ip, false)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    repair_allocations(server.registry(), &[]).await.unwrap();
    let place = ObjectKey { resource: ip_addresses::ip_address_resource().unwrap(), namespace: "", name: "10.96.0.9" };
    assert!(LoopbackClient::new(&**server.registry()).read_object(place).await.unwrap().is_some());
}
