//! Errors of the authentication configuration.

use api::yaml;

/// An invalid authentication configuration.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationConfigError {
    /// The file is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(#[from] yaml::YamlError),
    /// The file has an unknown field or a field of the wrong type.
    #[error("strict decoding error: {0}")]
    Decode(String),
    /// The file is of another kind or version.
    #[error("no kind {0:?} is registered for version {1:?}")]
    Kind(String, String),
    /// A field is invalid; the text is upstream's.
    #[error("invalid authentication configuration: {0}")]
    Invalid(String),
}

/// Returns the error of an invalid field.
pub fn invalid_configuration(text: String) -> AuthenticationConfigError {
    AuthenticationConfigError::Invalid(text)
}
