//! Expressions in place of claims, with tokens of a real issuer; and files whose expressions are wrong.

use super::*;

/// An issuer as a file describes it, with some mappings and rules in YAML's flow style.
async fn of_file(issuer: &Issuer, rest: &str) -> World {
    let (url, authority) = (&issuer.listener.url, issuer.listener.authority.replace('\n', "\\n"));
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {{url: \"{url}\", audiences: \
         [client], certificateAuthority: \"{authority}\"}}\n  {rest}\n"
    );
    world(AuthenticationFile::parse(&text, &[]).unwrap_or_else(|error| panic!("{rest}: {error}")).issuers).await
}

#[tokio::test]
async fn expressions_make_users_of_claims() {
    let key = Signing::new("k1");
    let issuer = Issuer::new(&[&key], "max-age=3600").await;
    let check = async |rest: &str, changed: Value, want: &str| {
        let world = of_file(&issuer, rest).await;
        let token = key.token("ES256", &issuer.claims(changed.clone()));
        assert_eq!(who(&world, &token).await, want, "{rest} {changed}");
    };
    let name = "claimMappings: {username: {expression: \"'x:' + claims.sub\"}}";
    check(name, json!({}), "x:joe/ system:authenticated").await;
    let failed = "401 oidc: error evaluating username claim expression: ";
    check(
        name,
        json!({"sub": null}),
        &format!("{failed}expression ''x:' + claims.sub' resulted in error: no such key: sub"),
    )
    .await;
    let plain = |expression: &str| format!("claimMappings: {{username: {{expression: \"{expression}\"}}}}");
    check(&plain("claims.sub"), json!({"sub": 7}), &format!("{failed}username claim expression must return a string"))
        .await;
    check(&plain("claims.sub"), json!({"sub": ""}), "401 oidc: empty username via CEL expression is not allowed").await;
    check(&plain("claims.k8s__dot__io.user"), json!({"k8s.io": {"user": "deep"}}), "deep/ system:authenticated").await;
    let email = plain("claims.?email_verified.orValue(false) == true ? claims.email : 'nobody'");
    check(&email, json!({"email": "a@b", "email_verified": true}), "a@b/ system:authenticated").await;
    check(&email, json!({"email": "a@b"}), "nobody/ system:authenticated").await;

    let groups = |expression: &str| {
        format!("claimMappings: {{username: {{claim: sub, prefix: ''}}, groups: {{expression: \"{expression}\"}}}}")
    };
    check(&groups("claims.roles.split(',')"), json!({"roles": "a,,b"}), "joe/ a b system:authenticated").await;
    check(&groups("claims.roles"), json!({"roles": "one"}), "joe/ one system:authenticated").await;
    check(&groups("claims.?roles.orValue(null)"), json!({}), "joe/ system:authenticated").await;
    let neither =
        "401 oidc: error evaluating group claim expression: expression must return a string or a list of strings";
    check(&groups("claims.roles"), json!({"roles": [1]}), neither).await;
    check(&groups("claims.roles"), json!({"roles": 1}), neither).await;

    let more = "claimMappings: {username: {claim: sub, prefix: ''}, uid: {expression: claims.id}, extra: [{key: e.com/a, \
                valueExpression: claims.a}, {key: e.com/b, valueExpression: \"claims.?b.orValue('')\"}]}";
    check(more, json!({"id": "u1", "a": ["x", "y"]}), "joe/u1 system:authenticated e.com/a=x+y").await;
    let uid = "401 oidc: error evaluating uid claim expression: uid claim expression must return a string";
    check(more, json!({"id": 1, "a": "x"}), uid).await;
    let extra = "401 oidc: error evaluating extra claim expression: claims.a: expression must return a string or a list of strings";
    check(more, json!({"id": "u1", "a": {}}), extra).await;
}

#[tokio::test]
async fn rules_refuse_claims_and_users() {
    let key = Signing::new("k1");
    let issuer = Issuer::new(&[&key], "max-age=3600").await;
    let check = async |rules: &str, changed: Value, want: &str| {
        let world =
            of_file(&issuer, &format!("claimMappings: {{username: {{claim: sub, prefix: ''}}}}\n  {rules}")).await;
        let token = key.token("ES256", &issuer.claims(changed.clone()));
        assert_eq!(who(&world, &token).await, want, "{rules} {changed}");
    };
    let short = "claimValidationRules: [{expression: 'claims.exp - claims.iat <= 86400.0', message: too long}]";
    let now = clock::now().as_second();
    check(short, json!({"iat": now}), "joe/ system:authenticated").await;
    let failed = "401 oidc: error evaluating claim validation expression: ";
    let told = format!("{failed}validation expression 'claims.exp - claims.iat <= 86400.0' failed: too long");
    check(short, json!({"iat": 1}), &told).await;
    let missing =
        format!("{failed}expression 'claims.exp - claims.iat <= 86400.0' resulted in error: no such key: iat");
    check(short, json!({}), &missing).await;
    let user = "userValidationRules: [{expression: \"!user.username.startsWith('system:')\", message: reserved}]";
    check(user, json!({}), "joe/ system:authenticated").await;
    let told = "401 oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('system:')' \
                failed: reserved";
    check(user, json!({"sub": "system:x"}), told).await;
}

#[test]
fn expressions_of_a_file_must_compile() {
    let check = |rest: &str, want: &str| {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {{url: https://a, audiences: \
             [x]}}\n  {rest}\n"
        );
        let got = AuthenticationFile::parse(&text, &[]).map(drop).map_err(|error| error.to_string()).err();
        let got = got.unwrap_or_default();
        assert!(got.contains(want) && got.is_empty() == want.is_empty(), "{rest}\n{got}");
    };
    let name = |expression: &str| format!("claimMappings: {{username: {{expression: {expression}}}}}");
    let user = "claimMappings: {username: {claim: sub, prefix: ''}}\n  ";
    let at = "jwt[0].claimMappings.username";
    check(&name("claims.sub"), "");
    check(&name("claims"), "");
    check(
        &name("user.x"),
        &format!(
            "{at}.expression: Invalid value: \"user.x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'user'"
        ),
    );
    check(
        &name("claims.sub, claim: sub"),
        &format!("{at}: Invalid value: \"\": claim and expression can't both be set"),
    );
    check(
        &name("claims.sub, prefix: x"),
        &format!("{at}.prefix: Invalid value: \"x\": may not be specified when expression is set"),
    );
    check(
        &name("claims.email"),
        &format!("{at}.expression: Invalid value: \"claims.email\": claims.email_verified must be used in"),
    );
    check(&name("\"claims.email_verified ? claims.email : ''\""), "");
    let rule = |rule: &str| format!("{user}claimValidationRules: [{rule}]");
    check(
        &rule("{expression: claims.x}"),
        "jwt[0].claimValidationRules[0].expression: Invalid value: \"claims.x\": must evaluate to bool",
    );
    check(
        &rule("{expression: 'true', requiredValue: x}"),
        "requiredValue: Invalid value: \"x\": may not be specified when expression is set",
    );
    check(
        &rule("{expression: 'true', claim: x}"),
        "claimValidationRules[0]: Invalid value: \"x\": claim and expression can't both be set",
    );
    check(
        &rule("{expression: 'true'}, {expression: 'true'}"),
        "claimValidationRules[1].expression: Duplicate value: \"true\"",
    );
    let rule = |rule: &str| format!("{user}userValidationRules: [{rule}]");
    check(&rule("{expression: 'user.uid == \"\"'}"), "");
    check(&rule("{message: x}"), "jwt[0].userValidationRules[0].expression: Required value");
    check(&rule("{expression: user.name}"), "undefined field 'name'");
    let extra = |extra: &str| format!("claimMappings: {{username: {{claim: sub, prefix: ''}}, extra: [{extra}]}}");
    check(&extra("{key: e.com/x, valueExpression: claims.x}"), "");
    check(
        &extra("{key: x, valueExpression: claims.x}"),
        "extra[0].key: Invalid value: \"x\": must be a domain-prefixed path (such as \"acme.io/foo\")",
    );
    check(&extra("{key: e.com/X, valueExpression: claims.x}"), "must be lowercase");
    check(&extra("{key: a.k8s.io/x, valueExpression: claims.x}"), "are reserved for Kubernetes use");
    check(&extra("{key: e.com/x}"), "jwt[0].claimMappings.extra[0].valueExpression: Required value");
    check(
        &extra("{key: e.com/x, valueExpression: a}, {key: e.com/x, valueExpression: b}"),
        "undeclared reference to 'a'",
    );
}
