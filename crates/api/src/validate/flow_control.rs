//! Validation of FlowSchemas and PriorityLevelConfigurations beyond the rule tables.

use super::prelude::*;

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub fn validate_verbs(at: &FieldCursor, e: &mut ErrorList) {
    if !at.contains_text("*") && at.texts().any(|verb| !VERBS.contains(&verb)) {
        at.not_supported_as(e, at.value.clone(), VERBS);
    }
}

pub fn validate_flow_namespaces(list: &FieldCursor, e: &mut ErrorList) {
    for namespace in list.items().filter(|_| !list.contains_text("*")) {
        for fault in names::check_dns_label(namespace.text()) {
            let message = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
            namespace.invalid_text(e, message);
        }
    }
}

pub fn validate_flow_urls(urls: &FieldCursor, e: &mut ErrorList) {
    if !urls.contains_text("*") {
        urls.items().for_each(|url| self::validate_url(&url, e));
    }
}

fn validate_url(at: &FieldCursor, e: &mut ErrorList) {
    let text = at.text();
    let stars = text.matches('*').count();
    let fault = match text {
        "" => "must not be empty",
        "/" => return,
        _ if !text.starts_with('/') => "must start with slash",
        _ if text.contains(' ') => "must not contain white-space",
        _ if text.contains("//") => "must not contain double slash",
        _ if stars > 1 || stars == 1 && !text.ends_with("/*") => "wildcard can only do suffix matching",
        _ => return,
    };
    at.invalid_text(e, fault);
}

/// Requires the hand size to be at most the queues, within the entropy limit.
pub fn validate_hand_size(hand: &FieldCursor, e: &mut ErrorList) {
    let queues = hand.ancestor(1).get("queues").int();
    if hand.int() <= 0 {
        return;
    }
    if hand.int() > queues {
        hand.invalid(e, format!("should not be greater than queues ({queues})"));
    } else if required_entropy_bits(queues, hand.int()) > 60 {
        let what = format!("required entropy bits of deckSize {queues} and handSize {}", hand.int());
        hand.invalid(e, format!("{what} should not be greater than 60"));
    }
}

/// The entropy bits for shuffle sharding: the logarithm of the falling factorial, rounded up.
fn required_entropy_bits(deck: i64, hand: i64) -> i64 {
    let bits: f64 = (0..hand.min(64)).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as i64
}
