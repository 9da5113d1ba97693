//! Flow schemas and priority levels, as far as the tables cannot say what is right.

use super::prelude::*;

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub fn verbs(at: &At, e: &mut Errors) {
    if !at.has("*") && at.texts().any(|verb| !VERBS.contains(&verb)) {
        at.unsupported_as(e, at.value.clone(), VERBS);
    }
}

pub fn flow_namespaces(list: &At, e: &mut Errors) {
    for namespace in list.items().filter(|_| !list.has("*")) {
        for fault in names::label(namespace.text()) {
            let message = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
            namespace.invalid_text(e, message);
        }
    }
}

pub fn flow_urls(urls: &At, e: &mut Errors) {
    if !urls.has("*") {
        urls.items().for_each(|url| self::url(&url, e));
    }
}

fn url(at: &At, e: &mut Errors) {
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

/// A hand is dealt from the queues, and not from too many of them.
pub fn hand_size(hand: &At, e: &mut Errors) {
    let queues = hand.up(1).get("queues").int();
    if hand.int() <= 0 {
        return;
    }
    if hand.int() > queues {
        hand.invalid(e, format!("should not be greater than queues ({queues})"));
    } else if entropy(queues, hand.int()) > 60 {
        let what = format!("required entropy bits of deckSize {queues} and handSize {}", hand.int());
        hand.invalid(e, format!("{what} should not be greater than 60"));
    }
}

/// The bits that dealing a hand needs: the logarithm of the falling factorial, rounded up.
fn entropy(deck: i64, hand: i64) -> i64 {
    let bits: f64 = (0..hand.min(64)).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as i64
}
