//! Benchmarks authorization with 10,000 role bindings: allowed by a role, denied by all, requested by a node.

use std::sync::{Arc, LazyLock};

use apiserver_core::attributes::{Attributes, AttributesTarget, ResourceAttributes};
use divan::{Bencher, black_box};
use ferry_apiserver::{AuthorizationMode, AuthorizationOptions, Server, ServerConfig, ServerOptions, User};
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use store::{EmbeddedOptions, EmbeddedStore, Precondition, Store, WriteRequest};

const BINDINGS: usize = 10_000;
const NAMESPACES: usize = 100;
const USERS: usize = 1_000;
const ROLES: usize = 50;
const GROUP: &str = "rbac.authorization.k8s.io";

fn main() {
    divan::main();
}

/// A server over a store that is full of bindings.
struct World {
    server: Server,
    _runtime: tokio::runtime::Runtime,
    _dir: tempfile::TempDir,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let server = runtime.block_on(async {
        let store = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.expect("a store");
        let store: Arc<dyn Store> = Arc::new(store);
        let writes = stream::iter(objects()).map(|(key, object)| {
            let store = store.clone();
            let write = WriteRequest {
                key: key.into(),
                precondition: Precondition::Absent,
                value: Some(object.to_string().into()),
                ttl: None,
            };
            async move { store.write(write).await.expect("a write") }
        });
        writes.buffer_unordered(256).for_each(|_| async {}).await;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = tls.expect("TLS").with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let config = ServerConfig { store, kubelet_tls: Arc::new(tls), tokens: None };
        let authorization = AuthorizationOptions { modes: vec![AuthorizationMode::Node, AuthorizationMode::Rbac] };
        Server::with_options(config, ServerOptions { authorization, ..ServerOptions::default() })
            .await
            .expect("a server")
    });
    World { server, _runtime: runtime, _dir: dir }
});

fn objects() -> impl Iterator<Item = (String, Value)> {
    let roles = (0..NAMESPACES).flat_map(|namespace| {
        (0..ROLES).map(move |role| {
            let object = json!({"metadata": {"namespace": format!("ns-{namespace}"), "name": format!("role-{role}")},
                "rules": [
                    {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods", "services", "configmaps"]},
                    {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments", "replicasets"]},
                    {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": [format!("s-{role}")]}],
                "apiVersion": format!("{GROUP}/v1"), "kind": "Role"});
            (format!("/registry/{GROUP}/roles/ns-{namespace}/role-{role}"), object)
        })
    });
    let bindings = (0..BINDINGS).map(|at| {
        let namespace = at % NAMESPACES;
        let object = json!({"metadata": {"namespace": format!("ns-{namespace}"), "name": format!("binding-{at}")},
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": format!("role-{}", at % ROLES)},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": format!("user-{}", at % USERS)},
                {"apiGroup": GROUP, "kind": "Group", "name": format!("team-{}", at % 7)}],
            "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding"});
        (format!("/registry/{GROUP}/rolebindings/ns-{namespace}/binding-{at}"), object)
    });
    roles.chain(bindings)
}

/// User, group and request, and whether it is allowed.
#[divan::bench(args = [
    ("user-0", "others", "pods", true),
    ("nobody", "team-3", "pods", true),
    ("user-0", "others", "secrets", false),
    ("nobody", "team-3", "nodes", false),
    ("system:node:n", "system:nodes", "services", true),
    ("admin", "system:masters", "pods", true),
])]
fn decide(bencher: Bencher<'_, '_>, (name, group, resource, allowed): (&str, &str, &str, bool)) {
    let groups = vec![group.to_owned(), "system:authenticated".to_owned()];
    let user = User { name: name.to_owned(), groups, ..User::default() };
    let asked =
        ResourceAttributes { version: "v1", resource, namespace: "ns-0", name: "x", ..ResourceAttributes::default() };
    let attributes = Attributes { user: &user, verb: "get", target: AttributesTarget::Resource(asked) };
    let authorizers = WORLD.server.authorizers();
    bencher.bench(|| {
        let verdict =
            black_box(authorizers).authorize(black_box(&attributes)).now_or_never().expect("nobody is waited for");
        assert_eq!(verdict.is_allowed(), allowed);
    });
}
