//! CEL expressions of an AuthenticationConfiguration: claim mappings and validation rules.

use api::validate::FieldError;
use apiserver_core::User;
use expressions::{
    CompileError, CompileErrorType,
    authentication::{AuthenticationExpression, ExpressionInput},
};

use super::config_error::{AuthenticationConfigError, invalid_configuration};
use crate::AuthenticationErrors;

const EMAIL_VERIFIED_REQUIRED: &str = "claims.email_verified must be used in claimMappings.username.expression or \
                     claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used \
                     in claimMappings.username.expression";

/// The compiled expressions of an issuer.
#[derive(Debug, Default)]
pub struct IssuerExpressions {
    /// User name, in place of a claim.
    pub username: Option<AuthenticationExpression>,
    /// Groups, in place of a claim.
    pub groups: Option<AuthenticationExpression>,
    /// UID, in place of a claim.
    pub uid: Option<AuthenticationExpression>,
    /// Extra attributes, by key.
    pub extra: Vec<(String, AuthenticationExpression)>,
    /// Claim validation rules with their messages.
    pub claim_rules: Vec<(AuthenticationExpression, String)>,
    /// User validation rules with their messages.
    pub user_rules: Vec<(AuthenticationExpression, String)>,
}

/// Compiles the expression at `field`.
pub fn compile_at(
    field: String,
    source: &str,
    compile: fn(&str) -> Result<AuthenticationExpression, CompileError>,
) -> Result<AuthenticationExpression, AuthenticationConfigError> {
    compile(source).map_err(|error| {
        let field_error = match error.kind {
            CompileErrorType::Invalid => FieldError::invalid(field, source, error.detail),
            CompileErrorType::Internal => FieldError::new(field, api::validate::FieldErrorType::Internal, error.detail),
        };
        invalid_configuration(field_error.to_string())
    })
}

impl IssuerExpressions {
    /// Requires `claims.email_verified` where the user name uses `claims.email`.
    pub fn check_email(&self, path: &str) -> Result<(), AuthenticationConfigError> {
        let Some(username) = self.username.as_ref().filter(|username| username.uses_email) else { return Ok(()) };
        let rules = self.claim_rules.iter().map(|(rule, _)| rule);
        let mut all = rules.chain(self.extra.iter().map(|(_, extra)| extra)).chain([username]);
        if all.any(|expression| expression.uses_email_verified) {
            return Ok(());
        }
        let field = format!("{path}.claimMappings.username.expression");
        Err(invalid_configuration(FieldError::invalid(field, username.source(), EMAIL_VERIFIED_REQUIRED).to_string()))
    }

    /// Evaluates the user name.
    pub fn evaluate_username(
        expression: &AuthenticationExpression,
        claims: &ExpressionInput,
    ) -> Result<String, AuthenticationErrors> {
        let failed = |why: &str| {
            AuthenticationErrors::single(format!("oidc: error evaluating username claim expression: {why}"))
        };
        match expression.evaluate_string(claims).map_err(|error| failed(&error.to_string()))?.as_deref() {
            Some("") => Err("oidc: empty username via CEL expression is not allowed".into()),
            Some(name) => Ok(name.to_owned()),
            None => Err(failed("username claim expression must return a string")),
        }
    }

    /// Evaluates the groups.
    pub fn evaluate_groups(
        expression: &AuthenticationExpression,
        claims: &ExpressionInput,
    ) -> Result<Vec<String>, AuthenticationErrors> {
        let failed =
            |why: &str| AuthenticationErrors::single(format!("oidc: error evaluating group claim expression: {why}"));
        expression.evaluate_string_list(claims).map_err(|error| failed(&error.to_string()))?.map_err(failed)
    }

    /// Evaluates the UID.
    pub fn evaluate_uid(
        expression: &AuthenticationExpression,
        claims: &ExpressionInput,
    ) -> Result<String, AuthenticationErrors> {
        let failed =
            |why: &str| AuthenticationErrors::single(format!("oidc: error evaluating uid claim expression: {why}"));
        let uid = expression.evaluate_string(claims).map_err(|error| failed(&error.to_string()))?;
        uid.ok_or_else(|| failed("uid claim expression must return a string"))
    }

    /// Evaluates the extra attributes and adds them to `user`.
    pub fn add_extra(&self, user: &mut User, claims: &ExpressionInput) -> Result<(), AuthenticationErrors> {
        let mut evaluated = Vec::new();
        for (key, expression) in &self.extra {
            evaluated.push((
                key,
                expression,
                expression.evaluate_string_list(claims).map_err(|error| error.to_string())?,
            ));
        }
        for (key, expression, texts) in evaluated {
            let source = expression.source();
            let texts =
                texts.map_err(|why| format!("oidc: error evaluating extra claim expression: {source}: {why}"))?;
            if !texts.is_empty() {
                user.extra.insert(key.clone(), texts);
            }
        }
        Ok(())
    }

    /// Evaluates the claim validation rules.
    pub fn check_claims(&self, claims: &ExpressionInput) -> Result<(), AuthenticationErrors> {
        check_rules(&self.claim_rules, claims)
            .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}").into())
    }

    /// Evaluates the user validation rules.
    pub fn check_user(&self, user: &User) -> Result<(), AuthenticationErrors> {
        let input = ExpressionInput::from_user(&user.name, &user.uid, &user.groups, &user.extra);
        check_rules(&self.user_rules, &input)
            .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}").into())
    }
}

/// Evaluates all rules and reports the first that does not hold.
fn check_rules(
    rules: &[(AuthenticationExpression, String)],
    input: &ExpressionInput,
) -> Result<(), AuthenticationErrors> {
    let outcomes = rules.iter().map(|(rule, _)| rule.evaluate_bool(input)).collect::<Result<Vec<bool>, _>>();
    let outcomes = outcomes.map_err(|error| error.to_string())?;
    match outcomes.iter().position(|holds| !holds) {
        None => Ok(()),
        Some(at) => {
            let (rule, message) = &rules[at];
            Err(format!("validation expression '{}' failed: {message}", rule.source()).into())
        }
    }
}
