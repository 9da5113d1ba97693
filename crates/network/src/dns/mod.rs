//! Cluster DNS: the cluster's zone from informers, everything else from the node's resolvers.
//!
//! It serves UDP and TCP. Questions of hosts outside of the cluster are dropped, so that it is no open resolver. No packet
//! can make it panic: what cannot be decoded gets an error or no answer.

mod answer;
mod cache;
mod endpoint_records;
mod forwarder;
mod service;
mod zone;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use client::SharedInformer;
use hickory_proto::rr::Name;
use kube::{Api, Client, runtime::watcher};
use sys::net::IpCidr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

pub use service::DnsService;

use crate::views::NodeView;
use answer::{Responder, Transport};
use forwarder::Forwarder;
use zone::ClusterZone;

/// Time for a TCP client to send its next question.
const IDLE: Duration = Duration::from_secs(10);
/// TCP connections at one time.
const MOST_CONNECTIONS: usize = 256;

/// Options of the DNS server.
#[derive(Clone, Debug)]
pub struct DnsOptions {
    /// The zone of the cluster, for example `cluster.local`.
    pub domain: String,
    /// Ranges of pods and services; clients are in the former, reverse names in both.
    pub cluster_cidrs: Vec<IpCidr>,
    /// The address of the cluster's DNS service and those of this node.
    pub own_addresses: Vec<IpAddr>,
    /// The node's `resolv.conf`.
    pub resolv_conf: PathBuf,
}

/// The DNS server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The domain is not a DNS name.
    #[error("the cluster domain {0:?} is not a DNS name")]
    Domain(String),
    /// A socket failed.
    #[error("DNS socket: {0}")]
    Socket(#[from] io::Error),
}

/// The DNS server of a node.
pub struct DnsServer {
    responder: Responder,
    clients: ClientFilter,
    udp: UdpSocket,
    tcp: TcpListener,
}

/// The hosts that may ask.
struct ClientFilter {
    ranges: Vec<IpCidr>,
    own: Vec<IpAddr>,
    nodes: SharedInformer<NodeView>,
}

const ADDRESS_INDEX: &str = "address";

impl ClientFilter {
    fn is_allowed(&self, ip: IpAddr) -> bool {
        ip.is_loopback()
            || self.own.contains(&ip)
            || self.ranges.iter().any(|range| range.contains(ip))
            || !self.nodes.by_index(ADDRESS_INDEX, &ip.to_string()).is_empty()
    }
}

impl DnsServer {
    /// Starts the informers; serves from [`DnsServer::run`] on.
    pub fn new(
        client: Client,
        options: DnsOptions,
        sockets: (UdpSocket, TcpListener),
        shutdown: CancellationToken,
    ) -> Result<Self, DnsError> {
        let mut origin = Name::from_ascii(&options.domain).map_err(|_| DnsError::Domain(options.domain.clone()))?;
        origin.set_fqdn(true);
        let every = watcher::Config::default;
        let zone = ClusterZone::new(
            origin,
            SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            options.cluster_cidrs.clone(),
        );
        let nodes: SharedInformer<NodeView> = SharedInformer::start(Api::all(client), every(), shutdown);
        nodes.add_index(ADDRESS_INDEX, |node| node.internal_addresses().iter().map(IpAddr::to_string).collect());
        let forwarder = Forwarder::new(options.resolv_conf, options.own_addresses.clone());
        let clients = ClientFilter { ranges: options.cluster_cidrs, own: options.own_addresses, nodes };
        let (udp, tcp) = sockets;
        Ok(Self { responder: Responder::new(Arc::new(zone), forwarder), clients, udp, tcp })
    }

    /// Serves until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), DnsError> {
        if shutdown.run_until_cancelled(self.responder.wait_for_sync()).await.is_none() {
            return Ok(());
        }
        let server = Arc::new(self);
        let tcp = tokio::spawn(server.clone().serve_tcp(shutdown.clone()));
        let outcome = shutdown.run_until_cancelled(server.serve_udp()).await;
        tcp.abort();
        outcome.unwrap_or(Ok(()))
    }

    async fn serve_udp(self: &Arc<Self>) -> Result<(), DnsError> {
        let mut buffer = vec![0; 4096];
        loop {
            let (length, peer) = match self.udp.recv_from(&mut buffer).await {
                // The answer to an earlier client could not be delivered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                received => received?,
            };
            if !self.clients.is_allowed(peer.ip().to_canonical()) {
                continue;
            }
            let packet = buffer.get(..length).unwrap_or_default();
            match self.responder.respond_at_once(packet, Transport::Udp) {
                answer::Progress::Done(answer) => self.send(&answer, peer).await,
                answer::Progress::Ignored => {}
                answer::Progress::Forward(question) => {
                    let server = self.clone();
                    tokio::spawn(async move {
                        let answer = server.responder.forward(*question, Transport::Udp).await;
                        server.send(&answer, peer).await;
                    });
                }
            }
        }
    }

    async fn send(&self, answer: &[u8], peer: SocketAddr) {
        // A client that is gone needs no answer.
        let _ = self.udp.send_to(answer, peer).await;
    }

    async fn serve_tcp(self: Arc<Self>, shutdown: CancellationToken) {
        let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            let Ok((stream, peer)) = self.tcp.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if !self.clients.is_allowed(peer.ip().to_canonical()) {
                continue;
            }
            let (server, shutdown) = (self.clone(), shutdown.clone());
            tokio::spawn(async move {
                // A connection that breaks ends; the client asks again.
                let _ = shutdown.run_until_cancelled(server.serve_stream(stream)).await;
                drop(permit);
            });
        }
    }

    async fn serve_stream(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let question = async {
                let length = stream.read_u16().await?;
                let mut packet = vec![0; length.into()];
                stream.read_exact(&mut packet).await?;
                Ok::<_, io::Error>(packet)
            };
            let packet = tokio::time::timeout(IDLE, question).await??;
            let answer = match self.responder.respond_at_once(&packet, Transport::Tcp) {
                answer::Progress::Done(answer) => answer,
                answer::Progress::Ignored => return Ok(()),
                answer::Progress::Forward(question) => self.responder.forward(*question, Transport::Tcp).await,
            };
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
        }
    }
}
