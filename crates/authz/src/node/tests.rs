//! Tests of the Node authorizer for the node `n1` among two nodes.

use apiserver_core::{cache_index::Indexer, loopback, selectors::RequestSelectors};
use serde_json::{Value, json};

use super::*;

fn build_graph() -> NodeGraph {
    let mut graph = NodeGraph::default();
    let mut put = |group: &str, version: &str, name: &str, object: Value| {
        let resource = loopback::find_resource(group, version, name).unwrap();
        let (namespace, name) = (object["metadata"]["namespace"].as_str().unwrap_or(""), &object["metadata"]["name"]);
        graph.insert_object(loopback::ObjectKey { resource, namespace, name: name.as_str().unwrap() }, &object);
    };
    for (pod, node, used) in [("mine", "n1", "used"), ("theirs", "n2", "other"), ("waiting", "", "later")] {
        put(
            "",
            "v1",
            "pods",
            json!({"metadata": {"name": pod, "namespace": "a"}, "spec": {"nodeName": node, "serviceAccountName": used,
                "imagePullSecrets": [{"name": format!("{used}-pull")}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
                "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": format!("{used}-all")}}]}],
                "containers": [{"name": "c", "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": used, "key": "k"}}}]}],
                "volumes": [{"name": "v", "secret": {"secretName": used}}, {"name": "w", "projected": {"sources": [
                    {"configMap": {"name": format!("{used}-projected")}}]}},
                    {"name": "p", "persistentVolumeClaim": {"claimName": format!("{used}-claim")}},
                    {"name": "e", "ephemeral": {}}]},
                "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": format!("{used}-gpu")}]}}),
        );
    }
    let mirror = json!({"metadata": {"name": "mirror", "namespace": "a", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": "n1", "volumes": [{"name": "v", "secret": {"secretName": "wished"}}]}});
    put("", "v1", "pods", mirror);
    for (name, claim) in [("pv1", "used-claim"), ("pv2", "other-claim")] {
        put(
            "",
            "v1",
            "persistentvolumes",
            json!({"metadata": {"name": name}, "spec": {"claimRef": {"namespace": "a", "name": claim}, "csi": {
                "nodeStageSecretRef": {"namespace": "vault", "name": format!("{name}-stage")},
                "controllerExpandSecretRef": {"namespace": "vault", "name": format!("{name}-expand")}}}}),
        );
    }
    for (name, node) in [("at1", "n1"), ("at2", "n2")] {
        let object = json!({"metadata": {"name": name}, "spec": {"nodeName": node}});
        put("storage.k8s.io", "v1", "volumeattachments", object.clone());
        put("resource.k8s.io", "v1", "resourceslices", object.clone());
        let mut request = object;
        request["metadata"]["namespace"] = "a".into();
        put("certificates.k8s.io", "v1beta1", "podcertificaterequests", request);
    }
    graph
}

/// `request`: verb, resource with group and subresource, namespace or `-`, and name or `-`, perhaps with a field selector.
async fn assert_decision(node: &NodeAuthorizer, request: &str, want: Result<(), &str>) {
    let user = User { name: "system:node:n1".into(), groups: vec![NODES_GROUP.into()], ..User::default() };
    let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    let (verb, resource, namespace, name) = (words[0], words[1], words[2], words[3]);
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let selectors = RequestSelectors::parse(words.get(4).unwrap_or(&""), "");
    let resource =
        ResourceAttributes { group, version: "v1", resource, subresource, namespace, name, selectors: &selectors };
    let decision =
        node.authorize(&Attributes { user: &user, verb, target: AttributesTarget::Resource(resource) }).await;
    let got = if decision.is_allowed() { Ok(()) } else { Err(decision.reason().to_string()) };
    assert_eq!(got, want.map_err(str::to_owned), "{request}");
}

async fn new_authorizer() -> (NodeAuthorizer, (Arc<dyn store::Store>, tempfile::TempDir)) {
    let dir = tempfile::tempdir().unwrap();
    let store = store::EmbeddedStore::open(dir.path(), store::EmbeddedOptions::default()).await.unwrap();
    let store: Arc<dyn store::Store> = Arc::new(store);
    let cache = WatchCache::with_engine(
        store.clone(),
        Arc::new(apiserver_core::catalog::BuiltInCatalog),
        store::HistoryWindow::default(),
    )
    .await
    .unwrap();
    let mut node = NodeAuthorizer::new(&Arc::new(cache)).unwrap();
    node.graph.set(build_graph());
    (node, (store, dir))
}

const UNRELATED: Result<(), &str> = Err("no relationship found between node 'n1' and this object");

#[tokio::test]
async fn node_reads_what_its_pods_refer_to() {
    let (node, _kept) = new_authorizer().await;
    for name in ["used", "used-pull", "used-all"] {
        assert_decision(&node, &format!("get secrets a {name}"), Ok(())).await;
    }
    for request in [
        "list secrets a used",
        "watch secrets a used",
        "get configmaps a used",
        "get configmaps a used-projected",
        "get persistentvolumeclaims a used-claim",
        "get persistentvolumeclaims a mine-e",
        "patch persistentvolumeclaims/status a used-claim",
        "get persistentvolumes - pv1",
        "get secrets vault pv1-stage",
        "get serviceaccounts a used",
        "create serviceaccounts/token a used",
        "get resourceclaims.resource.k8s.io a used-gpu",
        "get volumeattachments.storage.k8s.io - at1",
        "get resourceslices.resource.k8s.io - at1",
        "delete resourceslices.resource.k8s.io - at1",
        "get podcertificaterequests.certificates.k8s.io a at1",
        "get pods a mine",
        "list pods a mine",
    ] {
        assert_decision(&node, request, Ok(())).await;
    }
    for request in [
        "get secrets a other",
        "get secrets a later",
        "get secrets a wished",
        "get secrets b used",
        "get configmaps a other",
        "get persistentvolumes - pv2",
        "get secrets vault pv2-stage",
        "get secrets vault pv1-expand",
        "get serviceaccounts a other",
        "create serviceaccounts/token a other",
        "get volumeattachments.storage.k8s.io - at2",
        "get podcertificaterequests.certificates.k8s.io a at2",
        "update resourceslices.resource.k8s.io - at2",
        "get pods a theirs",
    ] {
        assert_decision(&node, request, UNRELATED).await;
    }
}

#[tokio::test]
async fn other_requests_of_nodes_are_not_allowed() {
    let (node, _kept) = new_authorizer().await;
    for (request, why) in [
        ("delete secrets a used", "can only read resources of this type"),
        ("get secrets/x a used", "cannot read subresource"),
        ("list secrets a -", "No Object name found"),
        ("get secrets - used", "can only read namespaced object of this type"),
        ("list persistentvolumes - pv1", "can only get individual resources of this type"),
        ("get persistentvolumes/status - pv1", "cannot get subresource"),
        ("get persistentvolumeclaims/status a used-claim", "can only get/update/patch this type"),
        ("create serviceaccounts a used", "can only create token subresource of serviceaccount"),
        ("delete serviceaccounts a used", "can only create tokens for individual service accounts"),
        (
            "list leases.coordination.k8s.io kube-node-lease -",
            "can only get, create, update, patch, or delete a node lease",
        ),
        ("get leases.coordination.k8s.io a n1", "can only access leases in the \"kube-node-lease\" system namespace"),
        (
            "get leases.coordination.k8s.io kube-node-lease n2",
            "can only access node lease with the same name as the requesting node",
        ),
        ("get csinodes.storage.k8s.io - n2", "can only access CSINode with the same name as the requesting node"),
        ("get csinodes.storage.k8s.io/status - n1", "cannot authorize CSINode subresources"),
        ("list nodes - -", "node 'n1' cannot read all nodes, only its own Node object"),
        ("get nodes - n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("delete nodes - n1", ""),
        ("list pods - -", "can only list/watch pods with spec.nodeName field selector"),
        ("list pods - - spec.nodeName=n2", "can only list/watch pods with spec.nodeName field selector"),
        ("update pods a mine", ""),
        ("delete podcertificaterequests.certificates.k8s.io a at1", "nodes may not delete podcertificaterequests"),
        (
            "list podcertificaterequests.certificates.k8s.io a -",
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        (
            "list resourceslices.resource.k8s.io - -",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        ("list deployments.apps a -", ""),
    ] {
        assert_decision(&node, request, Err(why)).await;
    }
    for request in [
        "get leases.coordination.k8s.io kube-node-lease n1",
        "create leases.coordination.k8s.io kube-node-lease -",
        "update csinodes.storage.k8s.io - n1",
        "get nodes - n1",
        "create nodes - -",
        "patch nodes/status - n2",
        "watch pods - - spec.nodeName=n1",
        "list resourceslices.resource.k8s.io - - spec.nodeName=n1",
        "create pods a -",
        "patch pods/status a theirs",
        "create pods/eviction a theirs",
        "list services - -",
        "create events a -",
        "create tokenreviews.authentication.k8s.io - -",
    ] {
        assert_decision(&node, request, Ok(())).await;
    }
}

#[tokio::test]
async fn other_users_have_no_opinion() {
    let (node, _kept) = new_authorizer().await;
    let ask = async |name: &str, group: &str| {
        let user = User { name: name.into(), groups: vec![group.into()], ..User::default() };
        let request = AttributesTarget::Resource(ResourceAttributes {
            resource: "nodes",
            name: "n1",
            ..ResourceAttributes::default()
        });
        let decision = node.authorize(&Attributes { user: &user, verb: "get", target: request }).await;
        (decision.is_allowed(), decision.reason().to_string())
    };
    assert_eq!(ask("system:node:n1", NODES_GROUP).await, (true, String::new()));
    assert_eq!(ask("system:node:n1", "others").await, (false, String::new()));
    assert_eq!(ask("n1", NODES_GROUP).await, (false, String::new()));
    assert_eq!(ask("system:node:", NODES_GROUP).await, (false, "unknown node for user \"system:node:\"".into()));
}

#[test]
fn deleted_objects_lead_to_no_node() {
    let mut graph = build_graph();
    let secret = Vertex::new(VertexKind::Secret, "a", "used");
    let staged = Vertex::new(VertexKind::Secret, "vault", "pv1-stage");
    assert!(graph.leads_to(&secret, "n1") && graph.leads_to(&staged, "n1") && !graph.leads_to(&secret, "n2"));
    let volumes = loopback::find_resource("", "v1", "persistentvolumes").unwrap();
    graph.remove_object(loopback::ObjectKey { resource: volumes, namespace: "", name: "pv1" });
    assert!(graph.leads_to(&secret, "n1") && !graph.leads_to(&staged, "n1"));
    let pods = loopback::find_resource("", "v1", "pods").unwrap();
    graph.remove_object(loopback::ObjectKey { resource: pods, namespace: "a", name: "mine" });
    assert!(!graph.leads_to(&secret, "n1") && !graph.leads_to(&Vertex::new(VertexKind::Pod, "a", "mine"), "n1"));
}
