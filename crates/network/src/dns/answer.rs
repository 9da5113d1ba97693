//! From a packet to its answer: checks of the question, lookup in the zone, aliases, encoding within the client's limit.

use std::sync::Arc;

use hickory_proto::{
    op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode},
    rr::{DNSClass, Name, Record, RecordType},
};

use super::{
    forwarder::Forwarder,
    zone::{ClusterZone, ZoneAnswer},
};

/// The largest UDP answer that is sent, whatever the client allows: larger ones may be fragmented.
const LARGEST_UDP: u16 = 1232;
/// The largest UDP answer without EDNS.
const CLASSIC_UDP: u16 = 512;
/// Aliases that are followed.
const MOST_ALIASES: usize = 8;

/// Transport of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// The state of an answer after what can be done without waiting.
pub(super) enum Progress {
    /// The encoded answer.
    Done(Vec<u8>),
    /// A resolver must be asked.
    Forward(Box<ForwardedQuestion>),
    /// The packet is no question.
    Ignored,
}

/// A question whose rest is not the cluster's.
pub(super) struct ForwardedQuestion {
    request: Message,
    /// Aliases that led out of the cluster's zone.
    aliases: Vec<Record>,
    name: Name,
    kind: RecordType,
}

/// Answers packets. Cheap to clone.
#[derive(Clone)]
pub(super) struct Responder {
    zone: Arc<ClusterZone>,
    forwarder: Forwarder,
}

impl Responder {
    pub fn new(zone: Arc<ClusterZone>, forwarder: Forwarder) -> Self {
        Self { zone, forwarder }
    }

    /// Waits until the zone is complete.
    pub async fn wait_for_sync(&self) {
        self.zone.wait_for_sync().await;
    }

    /// Answers what needs no other host.
    pub fn respond_at_once(&self, packet: &[u8], transport: Transport) -> Progress {
        let request = match Message::from_vec(packet) {
            Ok(request) => request,
            Err(_) => return malformed(packet),
        };
        if request.metadata.message_type == MessageType::Response {
            return Progress::Ignored;
        }
        let (code, query) = check_request(&request);
        let Some(query) = query.filter(|_| code == ResponseCode::NoError) else {
            return Progress::Done(encode(&request, response_to(&request, code), transport));
        };
        let (mut name, kind) = (query.name.clone(), query.query_type);
        let mut response = response_to(&request, ResponseCode::NoError);
        response.metadata.authoritative = true;
        for _ in 0..MOST_ALIASES {
            match self.zone.lookup(&name, kind) {
                ZoneAnswer::Records { answers, additionals } => {
                    response.answers.extend(answers);
                    response.additionals = additionals;
                }
                ZoneAnswer::NoData => response.authorities.push(self.zone.soa()),
                ZoneAnswer::NameError => {
                    response.metadata.response_code = ResponseCode::NXDomain;
                    response.authorities.push(self.zone.soa());
                }
                ZoneAnswer::Alias(record, target) => {
                    response.answers.push(*record);
                    if kind != RecordType::CNAME {
                        name = target;
                        continue;
                    }
                }
                ZoneAnswer::NotOurs => {
                    let aliases = response.answers;
                    return Progress::Forward(Box::new(ForwardedQuestion { request, aliases, name, kind }));
                }
            }
            break;
        }
        Progress::Done(encode(&request, response, transport))
    }

    /// Asks the node's resolvers for the rest of an answer.
    pub async fn forward(&self, question: ForwardedQuestion, transport: Transport) -> Vec<u8> {
        let ForwardedQuestion { request, aliases, name, kind } = question;
        let mut response = response_to(&request, ResponseCode::NoError);
        response.answers = aliases;
        if !request.metadata.recursion_desired && response.answers.is_empty() {
            response.metadata.response_code = ResponseCode::Refused;
            return encode(&request, response, transport);
        }
        match self.forwarder.resolve(&name, kind).await {
            Ok(answer) => {
                response.metadata.response_code = answer.metadata.response_code;
                response.answers.extend(answer.answers);
                response.authorities = answer.authorities;
            }
            Err(error) => {
                tracing::debug!(%name, %error, "DNS: question was not answered by any resolver");
                response.metadata.response_code = ResponseCode::ServFail;
            }
        }
        encode(&request, response, transport)
    }
}

/// Checks a request; returns the error code and the query.
fn check_request(request: &Message) -> (ResponseCode, Option<&Query>) {
    let query = request.queries.first();
    let code = match (request.metadata.op_code, query) {
        (OpCode::Query, Some(query)) if request.queries.len() == 1 => match (query.query_class, query.query_type) {
            _ if request.edns.as_ref().is_some_and(|edns| edns.version() > 0) => ResponseCode::BADVERS,
            (_, RecordType::AXFR | RecordType::IXFR) => ResponseCode::Refused,
            // Answers with everything make amplification worthwhile.
            (_, RecordType::ANY) => ResponseCode::NotImp,
            (DNSClass::IN, _) => ResponseCode::NoError,
            _ => ResponseCode::Refused,
        },
        (OpCode::Query, _) => ResponseCode::FormErr,
        _ => ResponseCode::NotImp,
    };
    (code, query)
}

/// Answers a packet that cannot be decoded, if it has the header of a question.
fn malformed(packet: &[u8]) -> Progress {
    match packet {
        [high, low, flags, ..] if packet.len() >= 12 && flags & 0x80 == 0 => {
            let id = u16::from_be_bytes([*high, *low]);
            let error = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
            error.to_vec().map_or(Progress::Ignored, Progress::Done)
        }
        _ => Progress::Ignored,
    }
}

fn response_to(request: &Message, code: ResponseCode) -> Message {
    let mut response = Message::new(request.metadata.id, MessageType::Response, request.metadata.op_code);
    response.metadata = Metadata::response_from_request(&request.metadata);
    response.metadata.recursion_available = true;
    response.metadata.response_code = code;
    response.queries = request.queries.clone();
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(LARGEST_UDP);
        response.set_edns(edns);
    }
    response
}

/// Encodes a response; one that is too large for UDP is cut, so that the client asks by TCP.
fn encode(request: &Message, response: Message, transport: Transport) -> Vec<u8> {
    let allowed = request.edns.as_ref().map_or(CLASSIC_UDP, |edns| edns.max_payload().clamp(CLASSIC_UDP, LARGEST_UDP));
    let limit = if transport == Transport::Udp { usize::from(allowed) } else { usize::from(u16::MAX) };
    let failure = || Message::error_msg(request.metadata.id, OpCode::Query, ResponseCode::ServFail).to_vec();
    let encoded = match response.to_vec() {
        Ok(bytes) if bytes.len() <= limit => Ok(bytes),
        Ok(_) => {
            // Additional records are a service; without them the answer may fit.
            let mut shorter = response;
            shorter.additionals.clear();
            match shorter.to_vec() {
                Ok(bytes) if bytes.len() <= limit => Ok(bytes),
                _ => shorter.truncate().to_vec(),
            }
        }
        Err(error) => Err(error),
    };
    encoded.or_else(|_| failure()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::A;

    use super::*;

    /// A responder of an empty cluster without resolvers.
    fn responder() -> Responder {
        let reject = |_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, tower::BoxError>("unreachable".into())
        };
        let client = client::transport::in_process_client(tower::service_fn(reject), "test");
        let informers = client::SharedInformerFactory::new(client, tokio_util::sync::CancellationToken::new());
        let origin = Name::from_ascii("cluster.local.").unwrap();
        let ranges = vec!["10.96.0.0/16".parse().unwrap()];
        let zone = ClusterZone::new(
            origin,
            informers.informer_for(),
            informers.informer_for(),
            informers.informer_for(),
            ranges,
        );
        Responder::new(Arc::new(zone), Forwarder::new("/nonexistent".into(), Vec::new()))
    }

    fn question(name: &str, kind: RecordType) -> Message {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        message
    }

    fn check(responder: &Responder, request: &Message) -> Message {
        match responder.respond_at_once(&request.to_vec().unwrap(), Transport::Udp) {
            Progress::Done(bytes) => Message::from_vec(&bytes).unwrap(),
            Progress::Forward(_) => panic!("forwarded"),
            Progress::Ignored => panic!("ignored"),
        }
    }

    #[tokio::test]
    async fn names_of_the_cluster_are_answered_with_authority() {
        let responder = responder();
        let absent = check(&responder, &question("x.default.svc.cluster.local.", RecordType::A));
        assert_eq!(absent.metadata.response_code, ResponseCode::NXDomain);
        assert!(absent.metadata.authoritative && absent.authorities.len() == 1);
        let version = check(&responder, &question("DNS-Version.cluster.local.", RecordType::TXT));
        assert_eq!(version.answers.len(), 1);
        let reverse = check(&responder, &question("9.0.96.10.in-addr.arpa.", RecordType::PTR));
        assert_eq!(reverse.metadata.response_code, ResponseCode::NXDomain);
    }

    #[tokio::test]
    async fn questions_that_amplify_are_refused() {
        let responder = responder();
        let any = check(&responder, &question("cluster.local.", RecordType::ANY));
        assert_eq!(any.metadata.response_code, ResponseCode::NotImp);
        let transfer = check(&responder, &question("cluster.local.", RecordType::AXFR));
        assert_eq!(transfer.metadata.response_code, ResponseCode::Refused);
    }

    #[test]
    fn large_answer_is_truncated_for_udp_only() {
        let request = question("a.", RecordType::A);
        let mut response = response_to(&request, ResponseCode::NoError);
        let record = |last: u8| {
            Record::from_rdata(Name::from_ascii("a.").unwrap(), 5, hickory_proto::rr::RData::A(A::new(10, 0, 0, last)))
        };
        response.answers = (0..200).map(record).collect();
        let udp = Message::from_vec(&encode(&request, response.clone(), Transport::Udp)).unwrap();
        assert!(udp.metadata.truncation && udp.answers.is_empty());
        let tcp = Message::from_vec(&encode(&request, response, Transport::Tcp)).unwrap();
        assert!(!tcp.metadata.truncation && tcp.answers.len() == 200);
    }

    #[tokio::test]
    async fn malformed_packets_do_no_harm() {
        let responder = responder();
        let mut random = fastrand::Rng::with_seed(16);
        let valid = question("_http._tcp.web.default.svc.cluster.local.", RecordType::SRV).to_vec().unwrap();
        for round in 0..50_000 {
            let mut packet = valid.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..packet.len());
                packet[at] = random.u8(..);
            }
            packet.truncate(if round % 3 == 0 { random.usize(..=packet.len()) } else { packet.len() });
            if let Progress::Done(answer) = responder.respond_at_once(&packet, Transport::Udp) {
                assert!(answer.len() <= usize::from(LARGEST_UDP));
            }
        }
    }
}
