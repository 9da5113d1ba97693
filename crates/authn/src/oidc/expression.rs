//! Expressions of an `AuthenticationConfiguration`: what claims are mapped to, and what must hold for them and for the user.

use api::validate::FieldError;
use apiserver_core::User;
use expressions::{
    Fault, FaultKind,
    authentication::{Expression, Input},
};

use super::config::{ConfigError, invalid};

const EMAIL: &str = "claims.email_verified must be used in claimMappings.username.expression or \
                     claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used \
                     in claimMappings.username.expression";

/// All expressions of an issuer.
#[derive(Debug, Default)]
pub struct Expressions {
    /// What the user is called, in place of a claim.
    pub username: Option<Expression>,
    /// Which groups the user is in, in place of a claim.
    pub groups: Option<Expression>,
    /// The user's uid, in place of a claim.
    pub uid: Option<Expression>,
    /// What else is known of the user, by key.
    pub extra: Vec<(String, Expression)>,
    /// What must hold for claims, with what is said where it does not.
    pub claims_rules: Vec<(Expression, String)>,
    /// What must hold for the user.
    pub user_rules: Vec<(Expression, String)>,
}

/// Compiles the expression at `field`.
pub fn compile(
    field: String,
    source: &str,
    compile: fn(&str) -> Result<Expression, Fault>,
) -> Result<Expression, ConfigError> {
    compile(source).map_err(|fault| {
        let error = match fault.kind {
            FaultKind::Invalid => FieldError::invalid(field, source, fault.detail),
            FaultKind::Internal => FieldError::new(field, api::validate::FieldErrorType::Internal, fault.detail),
        };
        invalid(error.to_string())
    })
}

impl Expressions {
    /// Whoever calls users by their address must look at whether it is theirs.
    pub fn check_email(&self, path: &str) -> Result<(), ConfigError> {
        let Some(username) = self.username.as_ref().filter(|username| username.uses_email) else { return Ok(()) };
        let rules = self.claims_rules.iter().map(|(rule, _)| rule);
        let mut all = rules.chain(self.extra.iter().map(|(_, extra)| extra)).chain([username]);
        if all.any(|expression| expression.uses_email_verified) {
            return Ok(());
        }
        let field = format!("{path}.claimMappings.username.expression");
        Err(invalid(FieldError::invalid(field, username.source(), EMAIL).to_string()))
    }

    /// What the user is called.
    pub fn name(expression: &Expression, claims: &Input) -> Result<String, String> {
        let failed = |why: &str| format!("oidc: error evaluating username claim expression: {why}");
        match expression.text(claims).map_err(|why| failed(&why))?.as_deref() {
            Some("") => Err("oidc: empty username via CEL expression is not allowed".into()),
            Some(name) => Ok(name.to_owned()),
            None => Err(failed("username claim expression must return a string")),
        }
    }

    /// Which groups the user is in.
    pub fn groups(expression: &Expression, claims: &Input) -> Result<Vec<String>, String> {
        let failed = |why: &str| format!("oidc: error evaluating group claim expression: {why}");
        expression.texts(claims).map_err(|why| failed(&why))?.map_err(failed)
    }

    /// The user's uid.
    pub fn uid(expression: &Expression, claims: &Input) -> Result<String, String> {
        let failed = |why: &str| format!("oidc: error evaluating uid claim expression: {why}");
        let uid = expression.text(claims).map_err(|why| failed(&why))?;
        uid.ok_or_else(|| failed("uid claim expression must return a string"))
    }

    /// Adds what else is known of the user.
    pub fn add_extra(&self, user: &mut User, claims: &Input) -> Result<(), String> {
        let mut found = Vec::new();
        for (key, expression) in &self.extra {
            found.push((key, expression, expression.texts(claims)?));
        }
        for (key, expression, texts) in found {
            let source = expression.source();
            let texts =
                texts.map_err(|why| format!("oidc: error evaluating extra claim expression: {source}: {why}"))?;
            if !texts.is_empty() {
                user.extra.insert(key.clone(), texts);
            }
        }
        Ok(())
    }

    /// Checks what must hold for the claims.
    pub fn check_claims(&self, claims: &Input) -> Result<(), String> {
        hold(&self.claims_rules, claims)
            .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))
    }

    /// Checks what must hold for the user.
    pub fn check_user(&self, user: &User) -> Result<(), String> {
        let input = Input::user(&user.name, &user.uid, &user.groups, &user.extra);
        hold(&self.user_rules, &input).map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))
    }
}

/// All are evaluated before the first that does not hold is told.
fn hold(rules: &[(Expression, String)], input: &Input) -> Result<(), String> {
    let outcomes = rules.iter().map(|(rule, _)| rule.holds(input)).collect::<Result<Vec<bool>, String>>()?;
    match outcomes.iter().position(|holds| !holds) {
        None => Ok(()),
        Some(at) => {
            let (rule, message) = &rules[at];
            Err(format!("validation expression '{}' failed: {message}", rule.source()))
        }
    }
}
