//! Several links: who comes first, what an error in one means for the others, and what a review is told.

use super::*;

#[tokio::test]
async fn the_first_who_knows_wins_and_errors_are_collected() {
    let (clients, proxies) = (Signer::new("clients"), Signer::new("proxies"));
    let settings = AuthenticationConfig {
        client_ca: Some(clients.authority()),
        proxy_ca: Some(proxies.authority()),
        user_headers: vec!["X-Remote-User".into()],
        tokens: Some(UserTable::from_token_file("t1,token-user,1\n").unwrap()),
        passwords: Some(UserTable::from_password_file("p,basic-user,2\n").unwrap()),
        ..AuthenticationConfig::default()
    };
    let world = World::new(settings).await;
    let (client, proxy, stranger) =
        (clients.named("cert-user"), proxies.named("p"), Signer::new("x").named("cert-user"));
    let (good, bad) = (("authorization", "Bearer t1"), ("authorization", "Bearer t2"));
    let password = basic("basic-user", "p");
    let wrong = basic("basic-user", "x");
    let unknown = "invalid peer certificate: UnknownIssuer";
    let who = async |headers: &[(&str, &str)], peer: &ConnectionPeer| world.who(headers, Some(peer), "/").await.0;
    assert!(who(&[], &client).await.starts_with("cert-user/ system:authenticated"));
    assert!(who(&[good], &client).await.starts_with("cert-user/"), "certificates come before tokens");
    assert!(who(&[bad], &client).await.starts_with("cert-user/"));
    assert!(who(&[("authorization", &password)], &client).await.starts_with("basic-user/2"), "passwords come first");
    assert!(who(&[("authorization", &wrong)], &client).await.starts_with("cert-user/"));
    assert!(who(&[("x-remote-user", "other")], &client).await.starts_with("cert-user/"), "a client is no proxy");
    assert_eq!(who(&[("x-remote-user", "other"), good], &proxy).await, "other/ system:authenticated");
    // A certificate that is not accepted does not spoil a token, but it is not nothing either.
    assert_eq!(who(&[good], &stranger).await, "token-user/1 system:authenticated");
    assert_eq!(who(&[good], &proxy).await, "token-user/1 system:authenticated");
    let refused = who(&[], &stranger).await;
    assert!(refused.starts_with(&format!("401 [{unknown}, verifying certificate ")), "{refused}");
    let refused = who(&[bad], &stranger).await;
    assert!(refused.ends_with(&format!("failed: {unknown}, invalid bearer token]")), "{refused}");
    let refused = who(&[("authorization", &wrong)], &stranger).await;
    assert!(refused.contains("invalid username/password combination"), "{refused}");
}

#[tokio::test]
async fn reviews_ask_the_same_chain() {
    let tokens = Some(UserTable::from_token_file("t1,joe,1\n").unwrap());
    let audiences = vec!["api".to_owned(), "other".to_owned()];
    let world = World::new(AuthenticationConfig { tokens, audiences, ..AuthenticationConfig::default() }).await;
    let authenticator = world.server.authenticator();
    for (token, wanted, want) in [
        ("t1", &["api"][..], Ok(Some(("joe", vec!["api"])))),
        ("t1", &["api", "other", "third"], Ok(Some(("joe", vec!["api", "other"])))),
        ("t1", &[], Ok(Some(("joe", vec![])))),
        ("t1", &["third"], Err("invalid bearer token")),
        ("t2", &["api"], Err("invalid bearer token")),
        ("t\n1", &["api"], Err("invalid bearer token")),
        // A token that is none is nothing, and nothing is anonymous.
        (" ", &["api"], Ok(Some(("system:anonymous", vec!["api"])))),
    ] {
        let wanted: Vec<String> = wanted.iter().map(|audience| (*audience).to_owned()).collect();
        let got = authenticator.review_token(token, &wanted).await.map_err(|why| why.to_string());
        let want = want.map(|found| {
            found.map(|(name, audiences): (&str, Vec<&str>)| {
                (name.to_owned(), audiences.into_iter().map(str::to_owned).collect::<Vec<_>>())
            })
        });
        let got = got.map(|found| found.map(|found| (found.user.name, found.audiences)));
        assert_eq!(got, want.map_err(str::to_owned), "{token:?} {wanted:?}");
    }
}
