//! Front proxies and their headers.

use super::*;

fn settings(signer: &Signer, names: &[&str]) -> AuthenticationConfig {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    AuthenticationConfig {
        proxy_ca: Some(signer.authority()),
        proxy_names: texts(names),
        user_headers: texts(&["X-Remote-User", "X-Other-User"]),
        uid_headers: texts(&["X-Remote-Uid"]),
        group_headers: texts(&["X-Remote-Group"]),
        extra_prefixes: texts(&["X-Remote-Extra-"]),
        ..AuthenticationConfig::default()
    }
}

#[tokio::test]
async fn proxies_say_whom_they_ask_for() {
    let (signer, other) = (Signer::new("proxies"), Signer::new("other"));
    let world = World::new(settings(&signer, &["front"])).await;
    let front = signer.named("front");
    let front = Some(&front);
    let anonymous = "system:anonymous/ system:unauthenticated";
    world.check(&[("x-remote-user", "joe")], front, "joe/ system:authenticated").await;
    world.check(&[("x-other-user", "jim")], front, "jim/ system:authenticated").await;
    world.check(&[("x-other-user", "jim"), ("x-remote-user", "joe")], front, "joe/ system:authenticated").await;
    world.check(&[("x-remote-user", ""), ("x-other-user", "jim")], front, "jim/ system:authenticated").await;
    let groups = [("x-remote-user", "joe"), ("x-remote-group", "a"), ("x-remote-group", ""), ("x-remote-group", "b")];
    world.check(&groups, front, "joe/ a b system:authenticated").await;
    world.check(&[("x-remote-user", "joe"), ("x-remote-uid", "7")], front, "joe/7 system:authenticated").await;
    let extra = [("x-remote-user", "joe"), ("x-remote-extra-acme.com%2fscopes", "x"), ("X-Remote-Extra-B", "y")];
    world.check(&extra, front, "joe/ system:authenticated acme.com/scopes=x b=y").await;
    world.check(&[("x-remote-group", "a")], front, anonymous).await;
    world.check(&[("x-remote-user", "joe")], None, anonymous).await;
    let refused = "401 x509: subject with cn=back is not in the allowed list";
    world.check(&[("x-remote-user", "joe")], Some(&signer.named("back")), refused).await;
    let unknown = "401 invalid peer certificate: UnknownIssuer";
    world.check(&[("x-remote-user", "joe")], Some(&other.named("front")), unknown).await;
    let expired = signer.peer(&Subject { names: &["front"], expired: true, ..Subject::default() });
    let got = world.who(&[("x-remote-user", "joe")], Some(&expired), "/").await.0;
    assert!(got.starts_with("401 invalid peer certificate: certificate expired"), "{got}");
    let open = World::new(settings(&signer, &[])).await;
    open.check(&[("x-remote-user", "joe")], Some(&signer.named("back")), "joe/ system:authenticated").await;
}

#[tokio::test]
async fn the_headers_go_no_further() {
    let signer = Signer::new("proxies");
    let world = World::new(settings(&signer, &[])).await;
    let all = [
        ("x-remote-user", "joe"),
        ("x-other-user", "j"),
        ("x-remote-extra-a", "b"),
        ("x-remote-group", "g"),
        ("accept", "*/*"),
    ];
    for peer in [Some(signer.named("front")), None] {
        let (_, headers) = world.who(&all, peer.as_ref(), "/").await;
        assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["accept"]);
    }
    // The usual ones go even where there are no proxies.
    let (_, headers) = World::new(AuthenticationConfig::default()).await.who(&all, None, "/").await;
    let mut left: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["accept", "x-other-user"]);
}
