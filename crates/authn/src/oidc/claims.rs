//! Maps the claims of a verified token to a user.

use std::collections::BTreeMap;

use api::{Value, json::value_type_name};
use apiserver_core::User;
use expressions::authentication::ExpressionInput;

use super::{ClaimMapping, JwtIssuer, expression::IssuerExpressions};
use crate::{AuthenticationErrors, CREDENTIAL_ID};

/// Returns the user that the claims describe.
pub fn user_from_claims(issuer: &JwtIssuer, claims: &Value) -> Result<User, AuthenticationErrors> {
    let (input, expressions) = (ExpressionInput::from_claims(claims), &issuer.expressions);
    let mut user = User {
        name: match &expressions.username {
            Some(expression) => IssuerExpressions::evaluate_username(expression, &input)?,
            None => map_username(&issuer.username, claims)?,
        },
        groups: match (&issuer.groups, &expressions.groups) {
            (Some(mapping), _) => map_groups(mapping, claims)?,
            (None, Some(expression)) => IssuerExpressions::evaluate_groups(expression, &input)?,
            (None, None) => Vec::new(),
        },
        uid: match (&issuer.uid, &expressions.uid) {
            (Some(claim), _) => {
                string_claim(claims, claim).map_err(|why| format!("oidc: parse uid claim {claim:?}: {why}"))?
            }
            (None, Some(expression)) => IssuerExpressions::evaluate_uid(expression, &input)?,
            (None, None) => String::new(),
        },
        extra: credential_extra(claims),
    };
    expressions.add_extra(&mut user, &input)?;
    for (claim, required) in &issuer.required {
        if claims.get(claim).is_none() {
            return Err(format!("oidc: required claim {claim} not present in ID token").into());
        }
        let got = string_claim(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
        if got != *required {
            return Err(
                format!("oidc: required claim {claim} value does not match. Got = {got}, want = {required}").into()
            );
        }
    }
    expressions.check_claims(&input)?;
    expressions.check_user(&user)?;
    Ok(user)
}

fn map_username(mapping: &ClaimMapping, claims: &Value) -> Result<String, AuthenticationErrors> {
    let claim = &mapping.claim;
    let name = string_claim(claims, claim).map_err(|why| format!("oidc: parse username claims {claim:?}: {why}"))?;
    if claim == "email" {
        match claims.get("email_verified") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => return Err("oidc: email not verified".into()),
            Some(other) => {
                return Err(format!("oidc: parse 'email_verified' claim: {}", unmarshal_error("bool", other)).into());
            }
        }
    }
    Ok(format!("{}{name}", mapping.prefix))
}

/// Maps a claim with one group or a list.
fn map_groups(mapping: &ClaimMapping, claims: &Value) -> Result<Vec<String>, AuthenticationErrors> {
    let ClaimMapping { claim, prefix } = mapping;
    let invalid_claim =
        |why: String| AuthenticationErrors::single(format!("oidc: parse groups claim {claim:?}: {why}"));
    let groups = match claims.get(claim) {
        None if is_distributed(claims, claim) => {
            return Err("oidc: could not expand distributed claims: they are not supported".into());
        }
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => {
            let texts: Result<Vec<String>, AuthenticationErrors> = many
                .iter()
                .map(|one| one.as_str().map(str::to_owned).ok_or_else(|| invalid_claim(unmarshal_error("string", one))))
                .collect();
            texts?
        }
        Some(other) => return Err(invalid_claim(unmarshal_error("string", other))),
    };
    Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
}

/// Whether a claim is a distributed claim.
fn is_distributed(claims: &Value, claim: &str) -> bool {
    claims.get("_claim_names").is_some_and(|names| names.get(claim).is_some())
}

fn credential_extra(claims: &Value) -> BTreeMap<String, Vec<String>> {
    let id = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty());
    id.map(|id| (CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")])).into_iter().collect()
}

fn string_claim(claims: &Value, claim: &str) -> Result<String, AuthenticationErrors> {
    match claims.get(claim) {
        None => Err("claim not present".into()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(unmarshal_error("string", other).into()),
    }
}

/// Go's error text for a value of the wrong type.
fn unmarshal_error(wanted: &str, got: &Value) -> String {
    let got = value_type_name(got);
    format!("json: cannot unmarshal {got} into Go value of type {wanted}")
}
