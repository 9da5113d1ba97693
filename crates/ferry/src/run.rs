//! The cluster itself: store, API server, controllers, scheduler and kubelet in one process, started in that order and
//! ended in the reverse one. Components reach the API server without a socket, each under its upstream identity.

use std::{fs, net::IpAddr, sync::Arc, time::SystemTime};

use anyhow::Context;
use apiserver::{
    AdmissionOptions, AggregationOptions, AuthenticationConfig, AuthorizationMode, AuthorizationOptions, CaBundle,
    ReloadOptions, Server, ServerOptions, User, WatchedFile,
};
use client::{LeaderElectionConfig, LeaderElector, SharedInformerFactory, leader_election::stable_identity};
use controllers::{ClusterSigningOptions, ControllerOptions, IpRange, NodeIpamOptions, SigningKeyPair};
use kube::Client;
use store::Store;
use sys::net::Ipv4Cidr;
use tokio::net::TcpListener;

use crate::{
    certificate_renewal::run_renewal,
    cluster_network::{self, DnsSockets, NetworkClients, start_node_network},
    instance::CONTEXT,
    join,
    kubeconfig::Kubeconfig,
    local_path::{LOCAL_PATH_USER, apply_local_path_objects, start_local_path_provisioner},
    metrics_api::{METRICS_USER, start_metrics_api},
    node_components::{KubeletStart, container_runtime, wait_for_node},
    options::UpOptions,
    pidfile::InstanceLock,
    pki::{self, ClusterPki},
    preflight,
    shutdown::ComponentSet,
    state::InstanceState,
    steps::StepReporter,
};

/// The issuer of service account tokens.
const TOKEN_ISSUER: &str = "https://kubernetes.default.svc";
/// The prefix length of a node's pod range.
const NODE_MASK_SIZE: u8 = 24;
/// Runs the cluster until it is asked to end; `ready` is called once it is up.
pub async fn run_cluster(
    options: &UpOptions,
    steps: &mut StepReporter,
    ready: impl FnOnce(&StepReporter),
) -> anyhow::Result<()> {
    let data = options.instance.data();
    fs::create_dir_all(data).with_context(|| data.display().to_string())?;
    let Some(lock) = InstanceLock::take(&options.instance)? else {
        return Err(preflight::already_running(&options.instance));
    };
    lock.claim()?;
    let mut components = ComponentSet::new()?;
    let started = match &options.join {
        None => start_components(options, steps, &mut components).await,
        Some(target) => join::start_worker(options, target, steps, &mut components).await,
    };
    let outcome = match started {
        Ok(()) => {
            ready(steps);
            components.wait_for_shutdown().await
        }
        Err(error) => Err(error),
    };
    components.stop_all().await;
    lock.release();
    outcome
}

async fn start_components(
    options: &UpOptions,
    steps: &mut StepReporter,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    let instance = &options.instance;
    let mut state = InstanceState::load(instance)?;
    let listeners = BoundListeners::bind(options).await?;

    let store = steps.step("store", open_store(options)).await?;
    let pki = steps.step("certificates", prepare_certificates(options)).await?;
    let runtime = steps.step("container runtime", container_runtime(options, &mut state, components)).await?;
    for warning in &state.warnings {
        steps.warn(warning);
    }

    let (renewed, certificates) = (options.clone(), pki.certificates.clone());
    components.start("certificate renewal", |shutdown| async move {
        run_renewal(renewed, certificates, shutdown).await;
        Ok(())
    });
    let server = steps.step("API server", api_server(options, store, &pki, listeners.api, components)).await?;
    steps.step("controllers, scheduler", start_controllers_and_scheduler(options, &server, &pki, components)).await?;
    let dns = in_process_client(&server, "dns", cluster_network::NETWORK_USER.into(), &[]);
    let admin = in_process_client(&server, "ferry", "kubernetes-admin".into(), &["system:masters"]);
    cluster_network::apply_network_rules(&admin).await.context("RBAC rules of the network")?;
    cluster_network::apply_network_settings(options, &admin).await.context("settings of the network")?;
    let address = format!("https://{}", std::net::SocketAddr::new(options.node_ip, options.port));
    join::apply_bootstrap_objects(&admin, &address, &pki.ca).await.context("objects for nodes that join")?;
    apply_local_path_objects(&admin).await.context("objects of the local-path provisioner")?;
    let approver = admin.clone();
    components.start("serving certificates", |shutdown| async move {
        join::run_serving_approver(approver, shutdown).await;
        Ok(())
    });
    cluster_network::start_dns_service(options, dns.clone(), components);
    cluster_network::start_load_balancer(options, dns.clone(), components);
    let proxy = in_process_client(&server, "kube-proxy", "system:kube-proxy".into(), &[]);
    let clients = NetworkClients { proxy, network: dns };
    steps.step("network", start_node_network(options, clients, listeners.dns, components)).await?;
    let provisioner = in_process_client(&server, "local-path", LOCAL_PATH_USER.into(), &[]);
    start_local_path_provisioner(options, provisioner, components);
    let metrics = in_process_client(&server, "metrics-server", METRICS_USER.into(), &[]);
    start_metrics_api(options, &pki, &admin, metrics, components).await.context("metrics API")?;
    let client = in_process_client(&server, "kubelet", format!("system:node:{}", options.node_name), &["system:nodes"]);
    let tls = Arc::new(pki.certificates.kubelet_tls(&pki.ca)?);
    let kubelet = KubeletStart { options, tls, endpoint: runtime, listener: listeners.kubelet };
    steps.step("kubelet", kubelet.start(client.clone(), components)).await?;
    wait_for_node(options, client, steps, components).await?;
    steps.step("kubeconfig", write_kubeconfig(options, &pki, &mut state)).await
}

/// The ports, taken before anything else is done.
struct BoundListeners {
    api: TcpListener,
    kubelet: TcpListener,
    dns: DnsSockets,
}

impl BoundListeners {
    async fn bind(options: &UpOptions) -> anyhow::Result<Self> {
        let listen = async |address: IpAddr, port: u16| {
            let listener = TcpListener::bind((address, port)).await;
            listener.with_context(|| format!("cannot listen on {address} port {port}"))
        };
        let api = listen(options.bind_address, options.port).await?;
        let kubelet = listen(options.kubelet_address(), options.kubelet_port).await?;
        Ok(Self { api, kubelet, dns: DnsSockets::bind(options.node_ip, options.dns_port).await? })
    }
}

async fn open_store(options: &UpOptions) -> anyhow::Result<(Arc<dyn Store>, String)> {
    let store = options.storage.open(&options.instance.store()).await?;
    let page = store.list(store::ListOptions { limit: Some(1), ..Default::default() }).await?;
    let objects = page.records.len() + page.remaining;
    Ok((store, if objects == 0 { "new".into() } else { format!("{objects} objects") }))
}

async fn prepare_certificates(options: &UpOptions) -> anyhow::Result<(ClusterPki, String)> {
    let pki = pki::prepare_pki(&options.instance.pki(), &options.names(), SystemTime::now())?;
    let mut admin = Kubeconfig::read(&options.instance.admin_kubeconfig())?;
    admin.set(CONTEXT, &options.server_url(), &pki.ca, &pki.admin);
    admin.write(None)?;
    let detail = match pki.issued.len() {
        0 => "found".to_owned(),
        _ => format!("issued {}", if pki.issued.contains(&"ca") { "all".into() } else { pki.issued.join(", ") }),
    };
    Ok((pki, detail))
}

async fn api_server(
    options: &UpOptions,
    store: Arc<dyn Store>,
    pki: &ClusterPki,
    listener: TcpListener,
    components: &mut ComponentSet,
) -> anyhow::Result<(Server, String)> {
    let tokens = apiserver::TokenIssuer::new(TOKEN_ISSUER, &pki.service_accounts)?;
    let kubelet_tls = Arc::new(pki.certificates.kubelet_client_tls(&pki.ca)?);
    let config = apiserver::ServerConfig { store, kubelet_tls, tokens: Some(tokens) };
    let mut settings = api_server_options(options, pki)?;
    let verifier = apiserver::client_verifier(&settings.authentication);
    settings.reload.client_verifier = Some(verifier.clone());
    let tls = Arc::new(pki.certificates.api_server_tls(verifier)?);
    let server = Server::with_options(config, settings).await?;
    let serving = server.clone();
    components.start("API server", |shutdown| async move {
        serving.serve(listener, tls, shutdown).await;
        Ok(())
    });
    Ok((server, options.server_url()))
}

/// Builds the options of the API server.
fn api_server_options(options: &UpOptions, pki: &ClusterPki) -> anyhow::Result<ServerOptions> {
    let client_ca = Some(CaBundle::from_pem(&pki.ca).context("the cluster's CA")?);
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let authentication = AuthenticationConfig {
        client_ca,
        proxy_ca: Some(CaBundle::from_pem(&pki.front_proxy_ca).context("the authority of front proxies")?),
        proxy_names: texts(&["front-proxy-client"]),
        user_headers: texts(&["X-Remote-User"]),
        uid_headers: texts(&["X-Remote-Uid"]),
        group_headers: texts(&["X-Remote-Group"]),
        extra_prefixes: texts(&["X-Remote-Extra-"]),
        bootstrap_tokens: true,
        ..Default::default()
    };
    let certificate = pki.certificates.front_proxy.clone();
    let watched =
        |name: &str, text: &String| Some(WatchedFile { file: options.instance.pki().join(name), text: text.clone() });
    if options.initializers {
        apiserver::enable_initializers()?;
    }
    Ok(ServerOptions {
        build: crate::build_info::build_info(),
        service_networks: vec![options.service_cidr.to_string().parse().context("--service-cidr")?],
        advertise: Some((options.node_ip, options.port)),
        authentication,
        aggregation: AggregationOptions { certificate: Some(certificate), ..AggregationOptions::default() },
        authorization: AuthorizationOptions { modes: vec![AuthorizationMode::Node, AuthorizationMode::Rbac] },
        reload: ReloadOptions {
            client_ca: watched("ca.crt", &pki.ca),
            proxy_ca: watched("front-proxy-ca.crt", &pki.front_proxy_ca),
            ..ReloadOptions::default()
        },
        shared_store: !options.storage.etcd_servers.is_empty(),
        host_name: options.node_name.clone(),
        admission: admission_options()?,
        // They are parts of this process.
        components: Vec::new(),
        initializers: options.initializers.then_some(apiserver::INITIALIZATION),
        ..Default::default()
    })
}

/// Upstream's plug-ins, and the one that keeps kubelets to their own nodes.
fn admission_options() -> anyhow::Result<AdmissionOptions> {
    Ok(AdmissionOptions::new(&["NodeRestriction".into()], &[])?)
}

/// Starts the controller manager and the scheduler, each as a candidate of its leader election: of several instances on
/// one store, one runs the controllers and one the scheduler.
async fn start_controllers_and_scheduler(
    options: &UpOptions,
    server: &Server,
    pki: &ClusterPki,
    components: &mut ComponentSet,
) -> anyhow::Result<((), String)> {
    let identity_file = options.instance.leader_identity();
    let identity = stable_identity(&identity_file, &options.node_name)
        .with_context(|| format!("cannot use {}", identity_file.display()))?;
    let elector = |client: &Client, name: &str| {
        LeaderElector::new(client.clone(), name, LeaderElectionConfig::new(name, &identity))
    };
    let manager = in_process_client(server, "kube-controller-manager", "system:kube-controller-manager".into(), &[]);
    let planner = in_process_client(server, "kube-scheduler", "system:kube-scheduler".into(), &[]);
    let host = options.node_name.clone();
    let options = controller_options(options, pki);
    let accounts = server.clone();
    let client_of = move |account: &'static str| {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        let name = format!("system:serviceaccount:kube-system:{account}");
        in_process_client(&accounts, "kube-controller-manager", name, &groups)
    };
    components.start("controllers", |shutdown| {
        let elector = elector(&manager, "kube-controller-manager");
        let informers = SharedInformerFactory::new(manager, shutdown.clone());
        let fence = elector.fence();
        let client_of: controllers::ServiceAccountClients = Arc::new(move |account| fence.guard(client_of(account)));
        let lead = move |term| {
            let client_of = client_of.clone();
            controllers::run_controllers(client_of, informers.clone(), options.clone(), term)
        };
        async move {
            elector.run(shutdown, lead).await;
            Ok(())
        }
    });
    let elector = elector(&planner, "kube-scheduler");
    let planner = elector.fence().guard(planner);
    components.start("scheduler", |shutdown| async move {
        let lead = |term| {
            let options = scheduler::SchedulerOptions { host: host.clone(), ..Default::default() };
            let run = scheduler::run_scheduler(planner.clone(), options, term);
            async move {
                if let Err(error) = run.await {
                    tracing::error!(%error, "scheduler: invalid configuration");
                }
            }
        };
        elector.run(shutdown, lead).await;
        Ok(())
    });
    Ok(((), String::new()))
}

/// Builds the options of the controllers: the cluster's CA signs certificate requests, and bootstrap tokens work.
fn controller_options(options: &UpOptions, pki: &ClusterPki) -> ControllerOptions {
    let directory = options.instance.pki();
    let pair = SigningKeyPair { certificate: directory.join("ca.crt"), key: directory.join("ca.key") };
    ControllerOptions {
        controllers: ["*", "bootstrap-signer-controller", "token-cleaner-controller"].map(str::to_owned).to_vec(),
        root_ca: pki.ca.clone(),
        service_account_private_key: Some(pki.service_accounts.clone()),
        cluster_signing: ClusterSigningOptions::default().with_key_pair(&pair),
        node_ipam: node_ipam_options(options),
        ..Default::default()
    }
}

/// Every node gets a /24 of the pod range, or all of it if it is no larger.
fn node_ipam_options(options: &UpOptions) -> NodeIpamOptions {
    let range = |cidr: Ipv4Cidr| vec![IpRange { address: cidr.base.into(), prefix_length: cidr.prefix }];
    NodeIpamOptions {
        allocate_node_cidrs: true,
        cluster_cidrs: range(options.pod_cidr),
        service_cidrs: range(options.service_cidr),
        mask_size_ipv4: NODE_MASK_SIZE.max(options.pod_cidr.prefix),
        ..NodeIpamOptions::default()
    }
}

/// A client of this process's API server for a component.
fn in_process_client(server: &Server, component: &'static str, name: String, groups: &[&str]) -> Client {
    let groups = groups.iter().chain(&["system:authenticated"]).map(|group| (*group).to_owned()).collect();
    client::transport::in_process_client(server.local_service(User { name, groups, ..User::default() }), component)
}

/// Last of all, so that a start that fails leaves the user's current context alone.
async fn write_kubeconfig(
    options: &UpOptions,
    pki: &ClusterPki,
    state: &mut InstanceState,
) -> anyhow::Result<((), String)> {
    let mut kubeconfig = Kubeconfig::read(&options.kubeconfig)?;
    // The default cluster takes over what an earlier one left; others step aside.
    let taken = kubeconfig.names_another(CONTEXT, &pki.ca);
    let context = if taken { options.instance.cluster_name() } else { CONTEXT.to_owned() };
    if kubeconfig.current_context() != Some(&context) {
        state.previous_context = kubeconfig.current_context().map(str::to_owned);
    }
    kubeconfig.set(&context, &options.server_url(), &pki.ca, &pki.admin);
    kubeconfig.write(options.kubeconfig_owner)?;
    state.kubeconfig = Some(options.kubeconfig.clone());
    state.context = Some(context.clone());
    state.save(&options.instance)?;
    Ok(((), format!("{}, context {context}", options.kubeconfig.display())))
}

#[cfg(test)]
mod tests;
