//! The cache of answers from other resolvers: positive and negative, bounded, with answers kept past their end for the time
//! that no resolver answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{Name, RData, RecordType},
};
use moka::{Expiry, sync::Cache};

/// Most answers kept.
const CAPACITY: u64 = 10_000;
/// Bounds of an answer's lifetime, whatever its TTL says.
const LONGEST_TTL: u32 = 3600;
const LONGEST_NEGATIVE_TTL: u32 = 300;
const SHORTEST_TTL: u32 = 5;
/// Time for which an answer may be used past its end if no resolver answers.
const STALE: Duration = Duration::from_secs(3600);
/// The TTL of such an answer.
const STALE_TTL: u32 = 30;
/// An answer that was used this often is fetched again before its end.
const POPULAR: u32 = 2;

/// A question: name in lower case and type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct QuestionKey {
    name: Name,
    kind: RecordType,
}

impl QuestionKey {
    pub fn new(name: &Name, kind: RecordType) -> Self {
        Self { name: name.to_lowercase(), kind }
    }
}

/// An answer and its age.
#[derive(Debug)]
pub(super) struct CachedAnswer {
    message: Message,
    stored: Instant,
    lifetime: Duration,
    uses: AtomicU32,
}

/// Result of a cache lookup.
pub(super) enum CacheEntry {
    /// An answer; with `refresh`, it is popular and ends soon.
    Fresh {
        /// The answer with its remaining TTLs.
        message: Message,
        /// It should be fetched again now.
        refresh: bool,
    },
    /// An answer past its end.
    Stale(Message),
}

/// Removes answers when they are too old even for use as stale ones.
struct StaleExpiry;

impl Expiry<QuestionKey, Arc<CachedAnswer>> for StaleExpiry {
    fn expire_after_create(&self, _: &QuestionKey, answer: &Arc<CachedAnswer>, _: Instant) -> Option<Duration> {
        Some(answer.lifetime + STALE)
    }
}

/// The cache.
pub(super) struct AnswerCache {
    answers: Cache<QuestionKey, Arc<CachedAnswer>>,
}

impl AnswerCache {
    pub fn new() -> Self {
        Self { answers: Cache::builder().max_capacity(CAPACITY).expire_after(StaleExpiry).build() }
    }

    pub fn get(&self, key: &QuestionKey) -> Option<CacheEntry> {
        let answer = self.answers.get(key)?;
        let age = answer.stored.elapsed();
        let mut message = answer.message.clone();
        if age >= answer.lifetime {
            set_ttls(&mut message, |_| STALE_TTL);
            return Some(CacheEntry::Stale(message));
        }
        set_ttls(&mut message, |ttl| ttl.saturating_sub(age.as_secs() as u32));
        let uses = answer.uses.fetch_add(1, Ordering::Relaxed) + 1;
        let refresh = uses == POPULAR && age * 10 > answer.lifetime * 9;
        if refresh || age * 10 <= answer.lifetime * 9 {
            // Counted anew in the last tenth.
            answer.uses.store(if refresh { u32::MAX / 2 } else { POPULAR - 1 }, Ordering::Relaxed);
        }
        Some(CacheEntry::Fresh { message, refresh })
    }

    /// Keeps an answer if it may be kept.
    pub fn insert(&self, key: QuestionKey, message: &Message) {
        let Some(ttl) = answer_ttl(message) else { return };
        let answer = CachedAnswer {
            message: message.clone(),
            stored: Instant::now(),
            lifetime: Duration::from_secs(ttl.into()),
            uses: AtomicU32::new(0),
        };
        self.answers.insert(key, Arc::new(answer));
    }
}

fn set_ttls(message: &mut Message, ttl: impl Fn(u32) -> u32) {
    for record in message.answers.iter_mut().chain(&mut message.authorities) {
        record.ttl = ttl(record.ttl);
    }
}

/// The lifetime in seconds: the shortest TTL of an answer, or what the zone says of absent names. `None`: not to be kept.
fn answer_ttl(message: &Message) -> Option<u32> {
    let is_final = matches!(message.metadata.response_code, ResponseCode::NoError | ResponseCode::NXDomain);
    if !is_final || message.metadata.truncation {
        return None;
    }
    if message.metadata.response_code == ResponseCode::NoError && !message.answers.is_empty() {
        let shortest = message.answers.iter().map(|record| record.ttl).min()?;
        return Some(shortest.clamp(SHORTEST_TTL, LONGEST_TTL));
    }
    let negative = message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
        _ => None,
    });
    negative.map(|ttl| ttl.clamp(SHORTEST_TTL, LONGEST_NEGATIVE_TTL))
}

#[cfg(test)]
mod tests {
    use hickory_proto::{
        op::{MessageType, OpCode},
        rr::{Record, rdata::SOA},
    };

    use super::*;

    fn answer(ttl: u32) -> Message {
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        message.add_answer(Record::from_rdata(Name::root(), ttl, RData::from(std::net::Ipv4Addr::LOCALHOST)));
        message
    }

    #[test]
    fn lifetime_is_bounded() {
        assert_eq!(answer_ttl(&answer(60)), Some(60));
        assert_eq!(answer_ttl(&answer(0)), Some(SHORTEST_TTL));
        assert_eq!(answer_ttl(&answer(1_000_000)), Some(LONGEST_TTL));
    }

    #[test]
    fn negative_answer_lives_as_its_zone_says() {
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        message.metadata.response_code = ResponseCode::NXDomain;
        assert_eq!(answer_ttl(&message), None);
        let soa = SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, 20);
        message.add_authority(Record::from_rdata(Name::root(), 900, RData::SOA(soa)));
        assert_eq!(answer_ttl(&message), Some(20));
        message.metadata.response_code = ResponseCode::ServFail;
        assert_eq!(answer_ttl(&message), None);
    }
}
