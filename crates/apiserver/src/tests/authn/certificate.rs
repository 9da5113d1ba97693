//! Client certificates.

use sha2::{Digest, Sha256};

use super::*;

async fn check(world: &World, signer: &Signer, subject: Subject<'_>, want: &str) {
    let certificate = signer.sign(&subject);
    let digest: String = Sha256::digest(&certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    let peer = ConnectionPeer::new(None, Some(&[certificate]));
    let want = match want.starts_with("401") {
        true => want.to_owned(),
        false => format!("{want} authentication.kubernetes.io/credential-id=X509SHA256={digest}"),
    };
    // Twice: what is found out at the first request counts for the others.
    for _ in 0..2 {
        let got = world.who(&[], Some(&peer), "/api").await.0;
        let refused =
            want.starts_with("401") && got.starts_with("401 verifying certificate ") && got.contains(&want[4..]);
        assert!(got == want || refused, "{got}\n{want}");
    }
}

#[tokio::test]
async fn certificates_name_users() {
    let (signer, other) = (Signer::new("ca"), Signer::new("other"));
    let settings = AuthenticationConfig { client_ca: Some(signer.authority()), ..AuthenticationConfig::default() };
    let world = World::new(settings).await;
    let joe = || Subject { names: &["joe"], ..Subject::default() };
    check(&world, &signer, joe(), "joe/ system:authenticated").await;
    let devs = Subject { groups: &["devs"], ..joe() };
    check(&world, &signer, devs, "joe/ devs system:authenticated").await;
    let masters = Subject { groups: &["system:masters"], names: &["admin"], ..Subject::default() };
    check(&world, &signer, masters, "admin/ system:masters system:authenticated").await;
    check(&world, &signer, Subject { uids: &["u-1"], ..joe() }, "joe/u-1 system:authenticated").await;
    check(&world, &signer, Subject { groups: &["system:unauthenticated"], ..joe() }, "joe/ system:unauthenticated")
        .await;
    let anonymous = Subject { names: &["system:anonymous"], ..Subject::default() };
    check(&world, &signer, anonymous, "system:anonymous/").await;
    check(&world, &signer, Subject { names: &["jö"], ..Subject::default() }, "jö/ system:authenticated").await;
    check(&world, &signer, Subject { uids: &[""], ..joe() }, "401 UID cannot be an empty string").await;
    check(
        &world,
        &signer,
        Subject { expired: true, ..joe() },
        "401 failed: invalid peer certificate: certificate expired: ",
    )
    .await;
    check(&world, &signer, Subject { for_servers: true, ..joe() }, "401 extended key usage").await;
    check(&world, &other, joe(), "401 failed: invalid peer certificate: UnknownIssuer").await;
}

#[tokio::test]
async fn a_certificate_without_a_name_is_nobodys() {
    let signer = Signer::new("ca");
    let settings = AuthenticationConfig { client_ca: Some(signer.authority()), ..AuthenticationConfig::default() };
    let world = World::new(settings.clone()).await;
    let nameless = signer.peer(&Subject { groups: &["devs"], ..Subject::default() });
    // Nothing was said that could be wrong.
    world.check(&[], Some(&nameless), "system:anonymous/ system:unauthenticated").await;
    world.check(&[], Some(&ConnectionPeer::new(None, None)), "system:anonymous/ system:unauthenticated").await;
    world.check(&[], Some(&ConnectionPeer::new(None, Some(&[]))), "system:anonymous/ system:unauthenticated").await;
    let garbage = ConnectionPeer::new(None, Some(&[CertificateDer::from(vec![1, 2, 3])]));
    let want = "401 verifying certificate with malformed DER failed: invalid peer certificate: BadEncoding";
    world.check(&[], Some(&garbage), want).await;
    let strict = World::new(AuthenticationConfig { anonymous: false, ..settings }).await;
    strict.check(&[], Some(&nameless), "401 []").await;
}

#[tokio::test]
async fn without_an_authority_certificates_mean_nothing() {
    let world = World::new(AuthenticationConfig::default()).await;
    world.check(&[], Some(&Signer::new("ca").named("joe")), "system:anonymous/ system:unauthenticated").await;
}
