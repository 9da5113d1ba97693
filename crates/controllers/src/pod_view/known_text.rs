//! Texts that take no memory of their own: the values that upstream's components write.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// Types, states and reasons of conditions, phases, and protocols.
const KNOWN: [&str; 24] = [
    "True",
    "False",
    "Unknown",
    "Ready",
    "PodScheduled",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "DisruptionTarget",
    "Pending",
    "Running",
    "Succeeded",
    "Failed",
    "TCP",
    "UDP",
    "SCTP",
    "Always",
    "OnFailure",
    "Never",
    "PodCompleted",
    "ContainersNotReady",
    "Unschedulable",
    "Evicted",
    "TerminationByKubelet",
];

/// A text that is often one of few.
pub(crate) type KnownText = Cow<'static, str>;

fn known_text(text: String) -> KnownText {
    KNOWN.iter().find(|known| **known == text).map_or(Cow::Owned(text), |known| Cow::Borrowed(known))
}

/// Decodes a text that is always there.
pub(super) fn decode<'de, D: Deserializer<'de>>(decoder: D) -> Result<KnownText, D::Error> {
    String::deserialize(decoder).map(known_text)
}

/// Decodes a text that may be absent.
pub(super) fn decode_optional<'de, D: Deserializer<'de>>(decoder: D) -> Result<Option<KnownText>, D::Error> {
    Ok(Option::<String>::deserialize(decoder)?.map(known_text))
}
