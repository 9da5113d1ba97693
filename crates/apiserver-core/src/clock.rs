//! The server's clock, in the formats of the API.

/// The current time.
pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The current time as in `metadata.creationTimestamp`.
pub fn now_in_seconds() -> String {
    api::time::format_seconds(now())
}

/// The current time as in leases.
pub fn now_in_micros() -> String {
    api::time::format_micros(now())
}
