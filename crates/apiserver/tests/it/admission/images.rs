//! ImagePolicyWebhook, with a real server on loopback that knows which images may run.

use ferry_apiserver::AdmissionOptions;
use serde_json::{Value, json};

use crate::admission::{
    webhooks::Hook,
    world::{World, merge, names, pod},
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const DENIED: &str = "pods \"p\" is forbidden: image policy webhook backend denied one or more images: ";

/// A server whose images are judged by a webhook, which remembers as the configuration says.
async fn world(hook: &Hook, more: Value) -> (World, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("images.kubeconfig");
    std::fs::write(&file, hook.kubeconfig()).unwrap();
    let mut policy = json!({"kubeConfigFile": file});
    merge(&mut policy, more);
    let plugin = "ImagePolicyWebhook";
    let settings = AdmissionOptions::new(&names(&[plugin]), &names(&["ServiceAccount"])).unwrap();
    (World::with(settings.with_plugin_config(plugin, json!({"imagePolicy": policy}))).await, dir)
}

/// The webhook's decision, by the first image.
fn judge(review: &Value) -> Value {
    let status = match review["spec"]["containers"][0]["image"].as_str().unwrap_or_default() {
        "good" => json!({"allowed": true, "auditAnnotations": {"seen": "yes"}}),
        "bad" => json!({"allowed": false, "reason": "not signed"}),
        "silent" => json!({"allowed": false}),
        "confused" => return json!({"kind": "TokenReview", "apiVersion": "v1", "status": {"allowed": true}}),
        "nameless" => return json!({"status": {"allowed": true}}),
        _ => return json!("?"),
    };
    json!({"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "status": status})
}

fn image(image: &str) -> Value {
    pod("p", json!({"containers": [{"name": "c", "image": image}]}))
}

#[tokio::test]
async fn a_webhook_says_which_images_run() {
    let hook = Hook::plain(judge).await;
    let (world, _dir) = world(&hook, json!({"allowTTL": 30, "denyTTL": -1})).await;
    let dry = format!("{PODS}?dryRun=All");
    world.check("POST", &dry, image("good"), (201, "")).await;
    world.check("POST", &dry, image("bad"), (403, &format!("{DENIED}not signed"))).await;
    let silent = "pods \"p\" is forbidden: one or more images rejected by webhook backend";
    world.check("POST", &dry, image("silent"), (403, silent)).await;
    world.check("POST", &dry, image("nameless"), (201, "")).await;
    for (name, why) in
        [("confused", "it is no ImageReview but \"TokenReview\""), ("strange", "it is no ImageReview but \"\"")]
    {
        let url = format!("https://127.0.0.1:{}/hook", hook.port);
        let failed = format!("pods \"p\" is forbidden: Post \"{url}\": malformed response: {why}");
        world.check("POST", &dry, image(name), (403, &failed)).await;
    }
    let asked = hook.asked.lock().unwrap()[0].clone();
    let spec = json!({"containers": [{"image": "good"}], "namespace": "default"});
    assert_eq!((&asked["kind"], &asked["spec"]), (&json!("ImageReview"), &spec));
}

#[tokio::test]
async fn answers_are_remembered_as_long_as_configured() {
    let hook = Hook::plain(judge).await;
    let (world, _dir) = world(&hook, json!({"allowTTL": 30, "denyTTL": -1})).await;
    let dry = format!("{PODS}?dryRun=All");
    for name in ["good", "good", "bad", "bad"] {
        world.send("POST", &dry, &image(name)).await;
    }
    assert_eq!(hook.asked.lock().unwrap().len(), 3, "a yes is remembered, a no is not");
}

#[tokio::test]
async fn the_webhook_is_shown_all_images_and_its_own_annotations() {
    let hook = Hook::plain(judge).await;
    let (world, _dir) = world(&hook, json!({})).await;
    let mut two = image("good");
    two["spec"]["initContainers"] = json!([{"name": "i", "image": "before"}]);
    two["metadata"]["annotations"] = json!({"x.image-policy.k8s.io/ticket": "1", "other": "2"});
    world.create(PODS, two).await;
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "bad"}]}});
    let path = format!("{PODS}/p/ephemeralcontainers");
    world.check("PATCH", &path, ephemeral, (403, &format!("{DENIED}not signed"))).await;
    // Neither the status nor a deletion concerns it.
    world.check("PATCH", &format!("{PODS}/p/status"), json!({"status": {"phase": "Running"}}), (200, "")).await;
    world.check("DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), Value::Null, (200, "")).await;
    let asked: Vec<Value> = hook.asked.lock().unwrap().iter().map(|review| review["spec"].clone()).collect();
    let annotations = json!({"x.image-policy.k8s.io/ticket": "1"});
    let whole = json!({"containers": [{"image": "good"}, {"image": "before"}], "annotations": annotations, "namespace": "default"});
    let one = json!({"containers": [{"image": "bad"}], "annotations": annotations, "namespace": "default"});
    assert_eq!(asked, [whole, one]);
}

#[tokio::test]
async fn where_nobody_answers_the_configuration_decides() {
    let hook = Hook::plain(judge).await;
    hook.stop();
    let (closed, _dir) = world(&hook, json!({"retryBackoff": 1})).await;
    let answer = closed.send("POST", PODS, &image("good")).await;
    let said = answer.body["message"].as_str().unwrap_or_default();
    assert!(answer.code == 403 && said.starts_with("pods \"p\" is forbidden: Post \"https://127.0.0.1"), "{said}");
    let (open, _dir) = world(&hook, json!({"retryBackoff": 1, "defaultAllow": true})).await;
    open.check("POST", PODS, image("good"), (201, "")).await;
}
