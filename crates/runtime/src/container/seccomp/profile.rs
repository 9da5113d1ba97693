//! A profile as the OCI runtime specification writes it; files of localhost profiles have the same form.

use serde::Deserialize;

use super::SeccompError;

/// A profile.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct SeccompProfile {
    /// The action for calls without a rule.
    pub default_action: String,
    /// The error number of the default action.
    pub default_errno_ret: Option<u32>,
    /// Architectures beside the native one.
    pub architectures: Vec<String>,
    /// Flags of the system call.
    pub flags: Vec<String>,
    /// Rules, in order.
    pub syscalls: Vec<SyscallRule>,
}

/// A rule.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct SyscallRule {
    /// System calls.
    pub names: Vec<String>,
    /// The action.
    pub action: String,
    /// The error number of the action.
    pub errno_ret: Option<u32>,
    /// Conditions, which must all be true.
    pub args: Vec<ArgumentCondition>,
}

/// A condition on an argument.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ArgumentCondition {
    /// Which argument.
    pub index: u32,
    /// The value; of a masked comparison the mask.
    pub value: u64,
    /// The value of a masked comparison.
    pub value_two: u64,
    /// The operator.
    pub op: String,
}

impl SeccompProfile {
    /// Parses a profile in JSON.
    pub fn from_json(text: &[u8]) -> Result<Self, SeccompError> {
        serde_json::from_slice(text).map_err(|error| SeccompError::Profile(error.to_string()))
    }
}
