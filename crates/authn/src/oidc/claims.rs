//! What the claims of a verified token say of its user.

use std::collections::BTreeMap;

use api::{Value, json::kind_of_value};
use apiserver_core::User;
use expressions::authentication::Input;

use super::{JwtIssuer, Mapping, expression::Expressions};
use crate::CREDENTIAL;

/// The user that a token's claims name, or why they name none.
pub fn user(issuer: &JwtIssuer, claims: &Value) -> Result<User, String> {
    let (input, expressions) = (Input::claims(claims), &issuer.expressions);
    let mut user = User {
        name: match &expressions.username {
            Some(expression) => Expressions::name(expression, &input)?,
            None => name(&issuer.username, claims)?,
        },
        groups: match (&issuer.groups, &expressions.groups) {
            (Some(mapping), _) => groups(mapping, claims)?,
            (None, Some(expression)) => Expressions::groups(expression, &input)?,
            (None, None) => Vec::new(),
        },
        uid: match (&issuer.uid, &expressions.uid) {
            (Some(claim), _) => text(claims, claim).map_err(|why| format!("oidc: parse uid claim {claim:?}: {why}"))?,
            (None, Some(expression)) => Expressions::uid(expression, &input)?,
            (None, None) => String::new(),
        },
        extra: extra(claims),
    };
    expressions.add_extra(&mut user, &input)?;
    for (claim, wanted) in &issuer.required {
        if claims.get(claim).is_none() {
            return Err(format!("oidc: required claim {claim} not present in ID token"));
        }
        let got = text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
        if got != *wanted {
            return Err(format!("oidc: required claim {claim} value does not match. Got = {got}, want = {wanted}"));
        }
    }
    expressions.check_claims(&input)?;
    expressions.check_user(&user)?;
    Ok(user)
}

fn name(mapping: &Mapping, claims: &Value) -> Result<String, String> {
    let claim = &mapping.claim;
    let name = text(claims, claim).map_err(|why| format!("oidc: parse username claims {claim:?}: {why}"))?;
    if claim == "email" {
        match claims.get("email_verified") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => return Err("oidc: email not verified".into()),
            Some(other) => {
                return Err(format!("oidc: parse 'email_verified' claim: {}", not_a("bool", other)));
            }
        }
    }
    Ok(format!("{}{name}", mapping.prefix))
}

/// One group or several.
fn groups(mapping: &Mapping, claims: &Value) -> Result<Vec<String>, String> {
    let Mapping { claim, prefix } = mapping;
    let wrong = |why: String| format!("oidc: parse groups claim {claim:?}: {why}");
    let groups = match claims.get(claim) {
        None if is_elsewhere(claims, claim) => {
            return Err("oidc: could not expand distributed claims: they are not supported".into());
        }
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => {
            let texts: Result<Vec<String>, String> = many
                .iter()
                .map(|one| one.as_str().map(str::to_owned).ok_or_else(|| wrong(not_a("string", one))))
                .collect();
            texts?
        }
        Some(other) => return Err(wrong(not_a("string", other))),
    };
    Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
}

/// Whether a claim is to be asked for somewhere else.
fn is_elsewhere(claims: &Value, claim: &str) -> bool {
    claims.get("_claim_names").is_some_and(|names| names.get(claim).is_some())
}

fn extra(claims: &Value) -> BTreeMap<String, Vec<String>> {
    let id = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty());
    id.map(|id| (CREDENTIAL.to_owned(), vec![format!("JTI={id}")])).into_iter().collect()
}

fn text(claims: &Value, claim: &str) -> Result<String, String> {
    match claims.get(claim) {
        None => Err("claim not present".into()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(not_a("string", other)),
    }
}

/// What Go says of a value of another type.
fn not_a(wanted: &str, got: &Value) -> String {
    let got = kind_of_value(got);
    format!("json: cannot unmarshal {got} into Go value of type {wanted}")
}
