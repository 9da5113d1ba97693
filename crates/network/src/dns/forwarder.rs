//! Forwarding of questions that are not the cluster's to the node's resolvers.
//!
//! Safety: every question leaves from a new socket (a random port) that accepts answers of its resolver only, with a random
//! id; the answer must repeat the question, and only records of its own chain of aliases are passed on and kept. Equal
//! questions at one time are asked once, and only so many are under way.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RData, RecordType},
};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    sync::Semaphore,
};

use super::cache::{AnswerCache, CacheEntry, QuestionKey};

/// Time for one resolver to answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Rounds over all resolvers.
const ATTEMPTS: usize = 2;
/// Questions under way at one time.
const CONCURRENCY: usize = 512;
/// The size of UDP answers that fits everywhere.
const PAYLOAD: u16 = 1232;
/// Interval between checks of the file of resolvers.
const RELOAD: Duration = Duration::from_secs(5);

/// A question could not be answered by any resolver.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ForwardError {
    #[error("no resolver is configured")]
    NoResolver,
    #[error("no resolver answered: {0}")]
    NoAnswer(String),
}

type ForwardOutcome = Result<Message, ForwardError>;
type PendingAnswer = Shared<BoxFuture<'static, ForwardOutcome>>;

/// Forwards questions. Cheap to clone.
#[derive(Clone)]
pub(super) struct Forwarder {
    shared: Arc<ForwarderState>,
}

struct ForwarderState {
    resolv_conf: PathBuf,
    /// Our own addresses, which must not be asked.
    own: Vec<IpAddr>,
    resolvers: Mutex<ResolverList>,
    cache: AnswerCache,
    pending: Mutex<HashMap<QuestionKey, PendingAnswer>>,
    permits: Semaphore,
    random: SystemRandom,
}

#[derive(Default)]
struct ResolverList {
    servers: Vec<SocketAddr>,
    read_at: Option<Instant>,
    modified: Option<SystemTime>,
}

impl Forwarder {
    pub fn new(resolv_conf: PathBuf, own: Vec<IpAddr>) -> Self {
        let shared = Arc::new(ForwarderState {
            resolv_conf,
            own,
            resolvers: Mutex::default(),
            cache: AnswerCache::new(),
            pending: Mutex::default(),
            permits: Semaphore::new(CONCURRENCY),
            random: SystemRandom::new(),
        });
        Self { shared }
    }

    /// Answers a question from the cache or by asking the resolvers.
    pub async fn resolve(&self, name: &Name, kind: RecordType) -> ForwardOutcome {
        let key = QuestionKey::new(name, kind);
        let stale = match self.shared.cache.get(&key) {
            Some(CacheEntry::Fresh { message, refresh }) => {
                if refresh {
                    tokio::spawn(self.ask_once(key, name.clone(), kind));
                }
                return Ok(message);
            }
            Some(CacheEntry::Stale(message)) => Some(message),
            None => None,
        };
        match (self.ask_once(key, name.clone(), kind).await, stale) {
            (Err(_), Some(stale)) => Ok(stale),
            (outcome, _) => outcome,
        }
    }

    /// Joins an equal question under way, or asks.
    fn ask_once(&self, key: QuestionKey, name: Name, kind: RecordType) -> PendingAnswer {
        let mut pending = self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(under_way) = pending.get(&key) {
            return under_way.clone();
        }
        let (shared, own_key) = (self.shared.clone(), key.clone());
        let ask = async move {
            let outcome = shared.ask(&name, kind).await;
            if let Ok(message) = &outcome {
                shared.cache.insert(own_key.clone(), message);
            }
            shared.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&own_key);
            outcome
        };
        // A task of its own: a client that goes away must not stop what others wait for.
        let task = tokio::spawn(ask);
        let joined = async move { task.await.unwrap_or_else(|error| Err(ForwardError::NoAnswer(error.to_string()))) };
        let answer = joined.boxed().shared();
        pending.insert(key, answer.clone());
        answer
    }
}

impl ForwarderState {
    async fn ask(&self, name: &Name, kind: RecordType) -> ForwardOutcome {
        let servers = self.servers();
        if servers.is_empty() {
            return Err(ForwardError::NoResolver);
        }
        let Ok(_permit) = self.permits.acquire().await else { return Err(ForwardError::NoResolver) };
        let mut last = String::new();
        for server in servers.iter().cycle().take(servers.len() * ATTEMPTS) {
            match tokio::time::timeout(TIMEOUT, self.ask_server(*server, name, kind)).await {
                Ok(Ok(message)) if message.metadata.response_code != ResponseCode::ServFail => return Ok(message),
                Ok(Ok(_)) => last = format!("{server}: server failure"),
                Ok(Err(error)) => last = format!("{server}: {error}"),
                Err(_) => last = format!("{server}: timeout"),
            }
        }
        Err(ForwardError::NoAnswer(last))
    }

    async fn ask_server(&self, server: SocketAddr, name: &Name, kind: RecordType) -> io::Result<Message> {
        let id = self.random_id()?;
        let mut question = Message::new(id, MessageType::Query, OpCode::Query);
        question.metadata.recursion_desired = true;
        question.add_query(Query::query(name.clone(), kind));
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        question.set_edns(edns);
        let bytes = question.to_vec().map_err(io::Error::other)?;
        let answer = ask_udp(server, &bytes, &question).await?;
        let answer = if answer.metadata.truncation { ask_tcp(server, &bytes, &question).await? } else { answer };
        Ok(sanitize(answer, name))
    }

    fn random_id(&self) -> io::Result<u16> {
        let mut bytes = [0; 2];
        self.random.fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
        Ok(u16::from_ne_bytes(bytes))
    }

    /// The resolvers, read again when their file changed.
    fn servers(&self) -> Vec<SocketAddr> {
        let mut list = self.resolvers.lock().unwrap_or_else(PoisonError::into_inner);
        if list.read_at.is_none_or(|at| at.elapsed() >= RELOAD) {
            let modified = std::fs::metadata(&self.resolv_conf).and_then(|metadata| metadata.modified()).ok();
            if list.read_at.is_none() || modified != list.modified {
                let text = std::fs::read_to_string(&self.resolv_conf).unwrap_or_default();
                list.servers = parse_servers(&text, &self.own);
                list.modified = modified;
            }
            list.read_at = Some(Instant::now());
        }
        list.servers.clone()
    }
}

async fn ask_udp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Whatever does not answer this question is a forgery or late: keep waiting.
        if let Ok(answer) = Message::from_vec(buffer.get(..length).unwrap_or_default())
            && answers_question(&answer, question)
        {
            return Ok(answer);
        }
    }
}

async fn ask_tcp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; length.into()];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(io::Error::other)?;
    match answers_question(&answer, question) {
        true => Ok(answer),
        false => Err(io::Error::other("the answer is for another question")),
    }
}

fn answers_question(answer: &Message, question: &Message) -> bool {
    let same =
        |a: &Query, b: &Query| a.name == b.name && a.query_type == b.query_type && a.query_class == b.query_class;
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && answer.queries.len() == 1
        && answer.queries.iter().zip(&question.queries).all(|(a, b)| same(a, b))
}

/// Keeps the records that answer the question: those of its name and of the names that it is an alias of; and the zone's
/// authority for an absent name, if the name is in that zone.
fn sanitize(mut message: Message, name: &Name) -> Message {
    let mut chain = vec![name.clone()];
    let mut next = 0;
    while let Some(owner) = chain.get(next).cloned() {
        for record in &message.answers {
            if let RData::CNAME(target) = &record.data
                && record.name == owner
                && !chain.contains(&target.0)
            {
                chain.push(target.0.clone());
            }
        }
        next += 1;
    }
    message.answers.retain(|record| chain.contains(&record.name));
    let is_authority = |record: &hickory_proto::rr::Record| {
        record.record_type() == RecordType::SOA && chain.iter().any(|name| record.name.zone_of(name))
    };
    message.authorities.retain(is_authority);
    message.additionals.clear();
    message
}

/// The name servers of a `resolv.conf`, without ourselves.
fn parse_servers(text: &str, own: &[IpAddr]) -> Vec<SocketAddr> {
    let words = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")).map(str::trim);
    let ips = words.filter_map(|word| word.split('%').next()?.split_whitespace().next()?.parse::<IpAddr>().ok());
    ips.filter(|ip| !own.contains(ip)).map(|ip| SocketAddr::new(ip, 53)).collect()
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::{Record, rdata::CNAME};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    #[test]
    fn records_of_other_names_are_removed() {
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        let alias = RData::CNAME(CNAME(name("b.example.")));
        message.add_answer(Record::from_rdata(name("a.example."), 60, alias));
        message.add_answer(Record::from_rdata(name("b.example."), 60, RData::from(Ipv4Addr::LOCALHOST)));
        message.add_answer(Record::from_rdata(name("bank.example."), 60, RData::from(Ipv4Addr::LOCALHOST)));
        message.add_additional(Record::from_rdata(name("bank.example."), 60, RData::from(Ipv4Addr::LOCALHOST)));
        let kept = sanitize(message, &name("a.example."));
        assert_eq!((kept.answers.len(), kept.additionals.len()), (2, 0));
        assert!(kept.answers.iter().all(|record| record.name != name("bank.example.")));
    }

    #[test]
    fn answer_must_repeat_the_question() {
        let mut question = Message::new(7, MessageType::Query, OpCode::Query);
        question.add_query(Query::query(name("a.example."), RecordType::A));
        let mut answer = question.clone();
        answer.metadata.message_type = MessageType::Response;
        assert!(answers_question(&answer, &question));
        answer.metadata.id = 8;
        assert!(!answers_question(&answer, &question));
        answer.metadata.id = 7;
        answer.queries[0].name = name("b.example.");
        assert!(!answers_question(&answer, &question));
    }

    #[test]
    fn own_address_is_no_resolver() {
        let text = "# x\nnameserver 10.96.0.10\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\noptions ndots:5\n";
        let own = ["10.96.0.10".parse().unwrap()];
        let servers: Vec<String> = parse_servers(text, &own).iter().map(|server| server.ip().to_string()).collect();
        assert_eq!(servers, ["192.0.2.1", "fe80::1"]);
    }
}
