//! The server's clock, in the API's forms.

/// Now.
pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// Now, as `metadata.creationTimestamp` has it.
pub fn seconds() -> String {
    api::time::seconds(now())
}

/// Now, as leases have it.
pub fn micros() -> String {
    api::time::micros(now())
}
