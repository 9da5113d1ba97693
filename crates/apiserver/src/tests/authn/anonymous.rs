//! Requests that show nothing.

use super::*;

#[tokio::test]
async fn nobody_is_somebody_where_that_is_allowed() {
    let nobody = "system:anonymous/ system:unauthenticated";
    let tokens = Some(UserTable::from_token_file("t1,joe,1\n").unwrap());
    let settings = |anonymous: bool, paths: &[&str]| AuthenticationConfig {
        anonymous,
        anonymous_paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        tokens: tokens.clone(),
        ..AuthenticationConfig::default()
    };
    let open = World::new(settings(true, &[])).await;
    let closed = World::new(settings(false, &[])).await;
    let some = World::new(settings(true, &["/healthz", "/livez"])).await;
    let (good, bad) = ([("authorization", "Bearer t1")], [("authorization", "Bearer t2")]);
    let (joe, wrong) = ("joe/1 system:authenticated", "401 invalid bearer token");
    for (world, headers, path, want) in [
        (&open, &[][..], "/healthz", nobody),
        (&open, &[], "/api/v1/pods", nobody),
        (&open, &good, "/api/v1/pods", joe),
        (&open, &bad, "/healthz", wrong),
        (&closed, &[], "/healthz", "401 []"),
        (&closed, &[], "/api/v1/pods", "401 []"),
        (&closed, &good, "/healthz", joe),
        (&closed, &bad, "/healthz", wrong),
        (&some, &[], "/healthz", nobody),
        (&some, &[], "/livez", nobody),
        (&some, &[], "/healthz/", "401 []"),
        (&some, &[], "/livez/ping", "401 []"),
        (&some, &[], "/api/v1/pods", "401 []"),
        (&some, &good, "/api/v1/pods", joe),
        (&some, &bad, "/healthz", wrong),
    ] {
        assert_eq!(world.who(headers, None, path).await.0, want, "{headers:?} {path}");
    }
}
