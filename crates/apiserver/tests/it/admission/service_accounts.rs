//! ServiceAccount.

use serde_json::{Value, json};

use crate::admission::world::{World, pod, pod_with};

const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";
const TOKENS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

async fn made(world: &World, body: Value) -> Value {
    let answer = world.check("POST", PODS, body, (201, "")).await;
    answer.body["spec"].clone()
}

#[tokio::test]
async fn pods_run_as_an_account_and_get_its_token() {
    let world = World::new(&[]).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    world.create(accounts, json!({"metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "s"}]})).await;
    world.create(accounts, json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false})).await;
    let spec = made(&world, pod("p", json!({"initContainers": [{"name": "i", "image": "i"}]}))).await;
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    assert_eq!(
        volume["projected"]["sources"][0]["serviceAccountToken"],
        json!({"expirationSeconds": 3607, "path": "token"})
    );
    for list in ["containers", "initContainers"] {
        let mount = json!([{"name": name, "readOnly": true, "mountPath": TOKENS}]);
        assert_eq!(spec[list][0]["volumeMounts"], mount, "{list}");
    }
    let spec = made(&world, pod("p", json!({"automountServiceAccountToken": false}))).await;
    assert!(spec.get("volumes").is_none() && spec["containers"][0].get("volumeMounts").is_none());
    let spec = made(&world, pod("p", json!({"serviceAccountName": "quiet"}))).await;
    assert!(spec.get("volumes").is_none());
    let wanted = json!({"serviceAccountName": "quiet", "automountServiceAccountToken": true});
    assert_eq!(made(&world, pod("p", wanted)).await["volumes"].as_array().unwrap().len(), 1);
    let spec = made(&world, pod("p", json!({"serviceAccountName": "puller"}))).await;
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "s"}]));
    let own = json!({"serviceAccountName": "puller", "imagePullSecrets": [{"name": "o"}]});
    assert_eq!(made(&world, pod("p", own)).await["imagePullSecrets"], json!([{"name": "o"}]));
    let mut mounted = pod("p", json!({"volumes": [{"name": "mine", "emptyDir": {}}]}));
    mounted["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "mine", "mountPath": TOKENS}]);
    assert_eq!(made(&world, mounted).await["volumes"], json!([{"name": "mine", "emptyDir": {}}]));
    let refused =
        "pods \"p\" is forbidden: error looking up service account default/none: serviceaccount \"none\" not found";
    world.check("POST", PODS, pod("p", json!({"serviceAccountName": "none"})), (403, refused)).await;
}

#[tokio::test]
async fn accounts_may_limit_the_secrets_of_their_pods() {
    let world = World::new(&[]).await;
    let account = json!({"metadata": {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "known"}], "imagePullSecrets": [{"name": "pull"}]});
    world.create("/api/v1/namespaces/default/serviceaccounts", account).await;
    let check = async |mut body: Value, what: &str| {
        body["spec"]["serviceAccountName"] = "strict".into();
        let refused = format!(
            "pods \"p\" is forbidden: {what} is not allowed because service account strict does not reference that"
        );
        match what {
            "" => drop(world.check("POST", PODS, body, (201, "")).await),
            pull if pull.starts_with("imagePull") => {
                drop(world.check("POST", PODS, body, (403, &format!("{refused} imagePullSecret"))).await)
            }
            _ => drop(world.check("POST", PODS, body, (403, &format!("{refused} secret"))).await),
        }
    };
    let volume = |name: &str| pod("p", json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]}));
    check(volume("known"), "").await;
    check(volume("other"), "volume with secret.secretName=\"other\"").await;
    let env = |name: &str| json!({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]});
    check(pod_with("p", env("known")), "").await;
    check(pod_with("p", env("other")), "container c with envVar E referencing secret.secretName=\"other\"").await;
    let from = json!({"envFrom": [{"secretRef": {"name": "other"}}]});
    check(pod_with("p", from), "container c with envFrom referencing secret.secretName=\"other\"").await;
    let mut init = env("other");
    init["name"] = "i".into();
    init["image"] = "i".into();
    let said = "init container i with envVar E referencing secret.secretName=\"other\"";
    check(pod("p", json!({"initContainers": [init]})), said).await;
    check(pod("p", json!({"imagePullSecrets": [{"name": "pull"}]})), "").await;
    check(pod("p", json!({"imagePullSecrets": [{"name": "o"}]})), "imagePullSecrets[0].name=\"o\"").await;
}

#[tokio::test]
async fn pods_of_kubelets_get_at_no_secrets() {
    let world = World::new(&[]).await;
    let check = async |more: Value, what: &str| {
        let mut body = pod("p", json!({"nodeName": "n"}));
        crate::admission::world::merge(&mut body["spec"], more);
        body["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        let refused = format!("pods \"p\" is forbidden: a mirror pod may not {what}");
        world.check("POST", PODS, body, if what.is_empty() { (201, "") } else { (403, &refused) }).await;
    };
    check(json!({}), "").await;
    check(json!({"serviceAccountName": "default"}), "reference service accounts").await;
    check(json!({"imagePullSecrets": [{"name": "s"}]}), "reference secrets").await;
    check(json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), "reference secrets").await;
    let token = json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]});
    check(token, "use ServiceAccountToken volume projections").await;
}
