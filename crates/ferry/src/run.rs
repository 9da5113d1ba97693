//! The cluster itself: store, API server, controllers, scheduler and kubelet in one process, started in that order and
//! ended in the reverse one. Components reach the API server without a socket, each under its upstream identity.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context, anyhow, bail};
use apiserver::{
    AdmissionOptions, AggregationOptions, AuthenticationConfig, AuthorizationMode, AuthorizationOptions, CaBundle,
    ReloadOptions, Server, ServerOptions, User, WatchedFile,
};
use client::{LeaderElectionConfig, LeaderElector, SharedInformerFactory, leader_election::stable_identity};
use controllers::{ClusterSigningOptions, ControllerOptions, SigningKeyPair};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, runtime::wait::await_condition};
use store::Store;
use tokio::net::TcpListener;

use crate::{
    certificate_renewal::run_renewal,
    cluster_network::{self, DnsSockets, NetworkClients, start_node_network},
    containerd::Containerd,
    instance::CONTEXT,
    kubeconfig::Kubeconfig,
    network,
    node_readiness::{node_readiness, ready_condition},
    options::{RuntimeChoice, UpOptions},
    pidfile::InstanceLock,
    pki::{self, ClusterPki},
    preflight, runtime_check,
    shutdown::ComponentSet,
    state::InstanceState,
    steps::StepReporter,
    user_error::user_error,
};

/// The issuer of service account tokens.
const TOKEN_ISSUER: &str = "https://kubernetes.default.svc";
/// Time for the node to become Ready.
const READY: Duration = Duration::from_secs(60);

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
    let outcome = match start_components(options, steps, &mut components).await {
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
    cluster_network::start_dns_service(options, dns.clone(), components);
    cluster_network::start_load_balancer(options, dns.clone(), components);
    let proxy = in_process_client(&server, "kube-proxy", "system:kube-proxy".into(), &[]);
    let clients = NetworkClients { proxy, policy: dns.clone(), dns };
    steps.step("network", start_node_network(options, clients, listeners.dns, components)).await?;
    let client = in_process_client(&server, "kubelet", format!("system:node:{}", options.node_name), &["system:nodes"]);
    let kubelet = KubeletStart { options, pki: &pki, endpoint: runtime, listener: listeners.kubelet };
    steps.step("kubelet", kubelet.start(client.clone(), components)).await?;

    steps.begin("node Ready");
    tokio::select! {
        ready = node_ready(client, &options.node_name) => ready?,
        ended = components.wait_for_shutdown() => {
            ended?;
            bail!("asked to end before the node was Ready");
        }
    }
    steps.done(&format!("{} ({})", options.node_name, options.node_ip));
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

/// Finds or starts the runtime; returns its endpoint.
async fn container_runtime(
    options: &UpOptions,
    state: &mut InstanceState,
    components: &mut ComponentSet,
) -> anyhow::Result<(String, String)> {
    let instance = &options.instance;
    state.node_name = Some(options.node_name.clone());
    state.own_runtime = options.runtime == RuntimeChoice::Own;
    let (endpoint, cri, found) = match &options.runtime {
        RuntimeChoice::External(endpoint) => {
            state.warnings.clear();
            (endpoint.clone(), runtime_check::connect_external(endpoint).await?, true)
        }
        RuntimeChoice::Own => {
            state.warnings = network::set_up(options, state)?;
            let mut containerd = Containerd::new(instance)?;
            let (cri, found) = containerd.ensure_running().await?;
            containerd.load_pause(&cri).await?;
            serve_mirror(options, state, components).await?;
            components.start("containerd", |shutdown| containerd.run_supervised(shutdown));
            let pod_network = network::pod_network_of(options);
            components.start("pod network", |shutdown| async move { Ok(pod_network.run_repair(shutdown).await?) });
            (instance.own_endpoint(), cri, found)
        }
    };
    state.runtime_endpoint = Some(endpoint.clone());
    state.save(instance)?;
    let version = cri.fetch_version().await?;
    let how = if found { "found" } else { "started" };
    Ok((endpoint, format!("{how} {} {}", version.runtime_name, version.runtime_version)))
}

/// Serves images that were loaded by hand to the cluster's own containerd.
async fn serve_mirror(
    options: &UpOptions,
    state: &mut InstanceState,
    components: &mut ComponentSet,
) -> anyhow::Result<()> {
    let wished = TcpListener::bind((Ipv4Addr::LOCALHOST, options.mirror_port.unwrap_or(0))).await;
    let listener = match wished {
        Ok(listener) => listener,
        // The port of the last start is taken: any other will do, because containerd is told.
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("image mirror")?,
    };
    let port = listener.local_addr()?.port();
    Containerd::set_mirror(&options.instance, port)?;
    state.mirror_port = Some(port);
    let images = options.instance.images();
    components.start("image mirror", |shutdown| async move {
        runtime::mirror::serve_mirror(listener, images, shutdown).await;
        Ok(())
    });
    Ok(())
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
        let lead = move |term| {
            let client_of = Arc::new(client_of.clone());
            controllers::run_controllers(client_of, informers.clone(), options.clone(), term)
        };
        async move {
            elector.run(shutdown, lead).await;
            Ok(())
        }
    });
    let elector = elector(&planner, "kube-scheduler");
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
        ..Default::default()
    }
}

struct KubeletStart<'a> {
    options: &'a UpOptions,
    pki: &'a ClusterPki,
    endpoint: String,
    listener: TcpListener,
}

impl KubeletStart<'_> {
    async fn start(self, client: Client, components: &mut ComponentSet) -> anyhow::Result<((), String)> {
        let Self { options, pki, endpoint, listener } = self;
        let instance = &options.instance;
        let config = kubelet::KubeletConfig {
            node_name: options.node_name.clone(),
            node_ip: options.node_ip,
            pod_cidr: options.pod_cidr.to_string(),
            cluster_dns: kubelet::ClusterDns {
                servers: vec![cluster_network::dns_address(options.service_cidr).into()],
                domain: cluster_network::CLUSTER_DOMAIN.into(),
            },
            runtime_endpoint: endpoint,
            root_dir: instance.kubelet(),
            pod_logs_dir: instance.pod_logs(),
            cgroup_root: format!("{}/kubepods", instance.cgroup()),
            listener: listener.into_std()?,
            tls: Arc::new(pki.certificates.kubelet_tls(&pki.ca)?),
        };
        components
            .start("kubelet", |shutdown| async move { Ok(kubelet::run_kubelet(config, client, shutdown).await?) });
        Ok(((), format!("port {}", options.kubelet_port)))
    }
}

/// A client of this process's API server for a component.
fn in_process_client(server: &Server, component: &'static str, name: String, groups: &[&str]) -> Client {
    let groups = groups.iter().chain(&["system:authenticated"]).map(|group| (*group).to_owned()).collect();
    client::transport::in_process_client(server.local_service(User { name, groups, ..User::default() }), component)
}

async fn node_ready(client: Client, name: &str) -> anyhow::Result<()> {
    let last = Mutex::new("the node has not registered".to_owned());
    let started = Timestamp::now().as_second();
    let is_ready = |node: Option<&Node>| {
        let (ready, message) = node_readiness(node);
        *last.lock().unwrap_or_else(PoisonError::into_inner) = message;
        // What the node said before this start does not count.
        ready && node.and_then(last_heartbeat).is_some_and(|at| at.as_second() >= started)
    };
    match tokio::time::timeout(READY, await_condition(Api::<Node>::all(client), name, is_ready)).await {
        Ok(waited) => waited.map(drop).map_err(|error| anyhow!(error)),
        Err(_) => {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Err(user_error(
                format!("the node {name} is not Ready after {} s: {last}", READY.as_secs()),
                "The log says more; `ferry down` removes what was started.",
            ))
        }
    }
}

fn last_heartbeat(node: &Node) -> Option<Timestamp> {
    ready_condition(node)?.last_heartbeat_time.as_ref().map(|time| time.0)
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
