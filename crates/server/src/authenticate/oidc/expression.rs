//! The one place where expressions of an `AuthenticationConfiguration` are taken, or refused by name.

use super::config::ConfigError;

/// Refuses an expression at `field`, if there is one.
pub fn refuse(field: &str, expression: &str) -> Result<(), ConfigError> {
    if expression.is_empty() { Ok(()) } else { Err(ConfigError::Expression(field.to_owned())) }
}
