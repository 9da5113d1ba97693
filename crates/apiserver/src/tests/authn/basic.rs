//! Names and passwords of a file.

use super::*;

#[tokio::test]
async fn passwords_of_a_file_are_their_users() {
    let passwords =
        UserTable::from_password_file("secret,joe,1\npa:ss,jane,2,\"devs,ops\"\n\"\"\"q\",jim,3\n").unwrap();
    let world =
        World::new(AuthenticationConfig { passwords: Some(passwords), ..AuthenticationConfig::default() }).await;
    let invalid = "401 invalid username/password combination";
    let nothing = "system:anonymous/ system:unauthenticated";
    for (value, want) in [
        (basic("joe", "secret"), "joe/1 system:authenticated"),
        (basic("joe", "secret").replace("Basic", "bAsIc"), "joe/1 system:authenticated"),
        (basic("jane", "pa:ss"), "jane/2 devs ops system:authenticated"),
        (basic("jim", "\"q"), "jim/3 system:authenticated"),
        (basic("joe", "secret2"), invalid),
        (basic("joe", "secre"), invalid),
        (basic("joe", ""), invalid),
        (basic("jane", "secret"), invalid),
        (basic("nobody", "secret"), invalid),
        (basic("", ""), invalid),
        // What is no name and password is as good as nothing.
        ("Basic ???".to_owned(), nothing),
        (format!("Basic {}", BASE64_STANDARD.encode("joe")), nothing),
        ("Basic".to_owned(), nothing),
        ("Digest x".to_owned(), nothing),
    ] {
        world.check(&[("authorization", &value)], None, want).await;
    }
}
