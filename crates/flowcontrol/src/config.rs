//! Flow schemas and priority levels, parsed for matching and limiting.

use std::collections::HashMap;

use api::{Value, meta};
use http::HeaderValue;

/// All flow schemas and priority levels.
#[derive(Default)]
pub struct Config {
    /// By matching precedence, then by name.
    pub schemas: Vec<Schema>,
    /// By name.
    pub levels: HashMap<String, LevelConfig>,
}

/// A flow schema.
pub struct Schema {
    pub name: std::sync::Arc<str>,
    pub uid: HeaderValue,
    /// Name of the priority level.
    pub level: String,
    precedence: i64,
    pub distinguisher: Distinguisher,
    pub rules: Vec<Rule>,
}

/// The flow distinguisher method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    None,
    User,
    Namespace,
}

/// A policy rule: subjects and requests.
pub struct Rule {
    pub subjects: Vec<Subject>,
    pub resources: Vec<ResourceRule>,
    pub paths: Vec<PathRule>,
}

/// A subject.
pub enum Subject {
    User(String),
    Group(String),
    /// Namespace and name; the name may be `*`.
    Account(String, String),
}

/// A resource rule.
pub struct ResourceRule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub cluster: bool,
    pub namespaces: Vec<String>,
}

/// A non-resource rule.
pub struct PathRule {
    pub verbs: Vec<String>,
    pub paths: Vec<String>,
}

/// A priority level.
#[derive(Clone, Debug)]
pub struct LevelConfig {
    pub uid: HeaderValue,
    pub exempt: bool,
    pub shares: u64,
    /// Lendable percentage of the seats.
    pub lendable: u64,
    /// Borrowing limit as a percentage of the seats; `None` is unlimited.
    pub borrows: Option<u64>,
    /// Queuing; `None` rejects requests without a seat.
    pub queuing: Option<Queuing>,
}

/// The queuing configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    pub queues: usize,
    pub hand: usize,
    pub length: usize,
}

impl Config {
    /// Parses the objects.
    pub fn of<'a>(schemas: impl Iterator<Item = &'a Value>, levels: impl Iterator<Item = &'a Value>) -> Self {
        let mut schemas: Vec<Schema> = schemas.map(Schema::of).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let levels = levels.map(|level| (meta::name(level).to_owned(), LevelConfig::of(level))).collect();
        Self { schemas, levels }
    }
}

fn uid(object: &Value) -> HeaderValue {
    HeaderValue::from_str(meta::uid(object)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    meta::list_at(value, &[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Schema {
    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        Self {
            name: meta::name(object).into(),
            uid: uid(object),
            level: meta::string_at(spec, &["priorityLevelConfiguration", "name"]).to_owned(),
            precedence: meta::integer_at(spec, &["matchingPrecedence"]),
            distinguisher: match meta::string_at(spec, &["distinguisherMethod", "type"]) {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: meta::list_at(spec, &["rules"]).iter().map(Rule::of).collect(),
        }
    }
}

impl Rule {
    fn of(rule: &Value) -> Self {
        let resource = |rule: &Value| ResourceRule {
            verbs: texts(rule, "verbs"),
            groups: texts(rule, "apiGroups"),
            resources: texts(rule, "resources"),
            cluster: rule["clusterScope"] == true,
            namespaces: texts(rule, "namespaces"),
        };
        let path = |rule: &Value| PathRule { verbs: texts(rule, "verbs"), paths: texts(rule, "nonResourceURLs") };
        Self {
            subjects: meta::list_at(rule, &["subjects"]).iter().filter_map(Subject::of).collect(),
            resources: meta::list_at(rule, &["resourceRules"]).iter().map(resource).collect(),
            paths: meta::list_at(rule, &["nonResourceRules"]).iter().map(path).collect(),
        }
    }
}

impl Subject {
    fn of(subject: &Value) -> Option<Self> {
        let text = |path: &[&str]| meta::string_at(subject, path).to_owned();
        match meta::string_at(subject, &["kind"]) {
            "User" => Some(Subject::User(text(&["user", "name"]))),
            "Group" => Some(Subject::Group(text(&["group", "name"]))),
            "ServiceAccount" => {
                Some(Subject::Account(text(&["serviceAccount", "namespace"]), text(&["serviceAccount", "name"])))
            }
            _ => None,
        }
    }
}

impl LevelConfig {
    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let exempt = spec["type"] == "Exempt";
        let limits = if exempt { &spec["exempt"] } else { &spec["limited"] };
        let number = |field: &str| limits[field].as_u64();
        let queuing = &limits["limitResponse"]["queuing"];
        let count =
            |field: &str| queuing[field].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(1).max(1);
        let waits = limits["limitResponse"]["type"] == "Queue";
        let queues = count("queues");
        Self {
            uid: uid(object),
            exempt,
            shares: number("nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 }),
            lendable: number("lendablePercent").unwrap_or(0).min(100),
            borrows: number("borrowingLimitPercent"),
            queuing: waits.then(|| Queuing {
                queues,
                hand: count("handSize").min(queues),
                length: count("queueLengthLimit"),
            }),
        }
    }
}
