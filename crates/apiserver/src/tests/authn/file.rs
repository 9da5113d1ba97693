//! Tokens of a file.

use super::*;

const FILE: &str = "t1,joe,1\nt2,jane,2,\"devs,ops\"\nt3,jim,3,\nt4,system:anonymous,\nt5,eve,5,system:unauthenticated\n,nobody,6\nt1,john,7\n\"t,6\",kay,8\n";

#[tokio::test]
async fn tokens_of_a_file_are_their_users() {
    let tokens = Some(UserTable::from_token_file(FILE).unwrap());
    let world = World::new(AuthenticationConfig { tokens, ..AuthenticationConfig::default() }).await;
    let invalid = "401 invalid bearer token";
    for (token, want) in [
        ("t1", "john/7 system:authenticated"),
        ("t2", "jane/2 devs ops system:authenticated"),
        ("t3", "jim/3  system:authenticated"),
        ("t4", "system:anonymous/"),
        ("t5", "eve/5 system:unauthenticated"),
        ("t,6", "kay/8 system:authenticated"),
        ("t1 ", "john/7 system:authenticated"),
        ("t1 t2", "john/7 system:authenticated"),
        ("t9", invalid),
        ("T1", invalid),
        ("t", invalid),
        ("t11", invalid),
        ("joe", invalid),
        ("\"t,6\"", invalid),
    ] {
        world.check_token(token, want).await;
    }
}
