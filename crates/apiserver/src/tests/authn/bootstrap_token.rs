//! Bootstrap tokens.

use apiserver_core::loopback::{self, LoopbackClient, ObjectKey};
use serde_json::{Value, json};

use super::*;

async fn secret(world: &World, id: &str, change: impl Fn(&mut Value)) {
    let name = format!("bootstrap-token-{id}");
    let mut object = json!({
        "metadata": {"name": name, "namespace": "kube-system"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        },
    });
    change(&mut object);
    let resource = loopback::find_resource("", "v1", "secrets").unwrap();
    let place = ObjectKey { resource, namespace: "kube-system", name: &name };
    LoopbackClient::new(&**world.server.registry()).create_object(place, &object).await.unwrap();
}

fn data(key: &'static str, value: &'static str) -> impl Fn(&mut Value) {
    move |object| object["stringData"][key] = value.into()
}

#[tokio::test]
async fn secrets_are_tokens() {
    let world = World::new(AuthenticationConfig { bootstrap_tokens: true, ..AuthenticationConfig::default() }).await;
    secret(&world, "aaaaaa", |_| {}).await;
    secret(&world, "bbbbbb", data("auth-extra-groups", "system:bootstrappers:z,system:bootstrappers:a-1")).await;
    secret(&world, "cccccc", data("auth-extra-groups", "system:masters")).await;
    secret(&world, "dddddd", data("expiration", "2020-01-01T00:00:00Z")).await;
    secret(&world, "eeeeee", data("expiration", "2999-01-01T00:00:00Z")).await;
    secret(&world, "ffffff", data("expiration", "soon")).await;
    secret(&world, "gggggg", data("usage-bootstrap-authentication", "false")).await;
    secret(&world, "hhhhhh", data("token-id", "iiiiii")).await;
    secret(&world, "jjjjjj", |object| object["type"] = "Opaque".into()).await;
    secret(&world, "kkkkkk", data("auth-extra-groups", "system:bootstrappers:")).await;
    let invalid = "401 invalid bearer token";
    for (token, want) in [
        ("aaaaaa.0123456789abcdef", "system:bootstrap:aaaaaa/ system:bootstrappers system:authenticated"),
        (
            "bbbbbb.0123456789abcdef",
            "system:bootstrap:bbbbbb/ system:bootstrappers system:bootstrappers:a-1 system:bootstrappers:z \
             system:authenticated",
        ),
        ("eeeeee.0123456789abcdef", "system:bootstrap:eeeeee/ system:bootstrappers system:authenticated"),
        ("aaaaaa.0123456789abcdeg", invalid),
        ("aaaaaa.0123456789abcde", invalid),
        ("AAAAAA.0123456789abcdef", invalid),
        ("aaaaaa0123456789abcdef", invalid),
        ("cccccc.0123456789abcdef", invalid),
        ("dddddd.0123456789abcdef", invalid),
        ("ffffff.0123456789abcdef", invalid),
        ("gggggg.0123456789abcdef", invalid),
        ("hhhhhh.0123456789abcdef", invalid),
        ("jjjjjj.0123456789abcdef", invalid),
        ("kkkkkk.0123456789abcdef", invalid),
        ("zzzzzz.0123456789abcdef", invalid),
    ] {
        world.check_token(token, want).await;
    }
}

#[tokio::test]
async fn they_count_only_where_that_is_wanted() {
    let tokens = Some(UserTable::from_token_file("t,u,1").unwrap());
    let world = World::new(AuthenticationConfig { tokens, ..AuthenticationConfig::default() }).await;
    secret(&world, "aaaaaa", |_| {}).await;
    world.check_token("aaaaaa.0123456789abcdef", "401 invalid bearer token").await;
}
