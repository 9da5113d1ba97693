//! Flow schemas and priority levels, parsed for matching and limiting.

use std::collections::HashMap;

use api::{Value, meta};
use http::HeaderValue;

/// All flow schemas and priority levels.
#[derive(Default)]
pub struct FlowControlConfig {
    /// By matching precedence, then by name.
    pub schemas: Vec<FlowSchema>,
    /// By name.
    pub levels: HashMap<String, PriorityLevelConfig>,
}

/// A flow schema.
pub struct FlowSchema {
    pub name: std::sync::Arc<str>,
    pub uid: HeaderValue,
    /// Name of the priority level.
    pub level: String,
    precedence: i64,
    pub distinguisher: FlowDistinguisherMethod,
    pub rules: Vec<PolicyRule>,
}

/// The flow distinguisher method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDistinguisherMethod {
    None,
    User,
    Namespace,
}

/// A policy rule: subjects and requests.
pub struct PolicyRule {
    pub subjects: Vec<RuleSubject>,
    pub resources: Vec<ResourcePolicyRule>,
    pub paths: Vec<NonResourcePolicyRule>,
}

/// A subject.
pub enum RuleSubject {
    User(String),
    Group(String),
    /// Namespace and name; the name may be `*`.
    Account(String, String),
}

/// A resource rule.
pub struct ResourcePolicyRule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub cluster: bool,
    pub namespaces: Vec<String>,
}

/// A non-resource rule.
pub struct NonResourcePolicyRule {
    pub verbs: Vec<String>,
    pub paths: Vec<String>,
}

/// A priority level.
#[derive(Clone, Debug)]
pub struct PriorityLevelConfig {
    pub uid: HeaderValue,
    pub exempt: bool,
    pub shares: u64,
    /// Lendable percentage of the seats.
    pub lendable: u64,
    /// Borrowing limit as a percentage of the seats; `None` is unlimited.
    pub borrows: Option<u64>,
    /// Queuing; `None` rejects requests without a seat.
    pub queuing: Option<QueuingConfig>,
}

/// The queuing configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuingConfig {
    pub queues: usize,
    pub hand: usize,
    pub length: usize,
}

impl FlowControlConfig {
    /// Parses the objects.
    pub fn from_objects<'a>(schemas: impl Iterator<Item = &'a Value>, levels: impl Iterator<Item = &'a Value>) -> Self {
        let mut schemas: Vec<FlowSchema> = schemas.map(FlowSchema::from_object).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let levels =
            levels.map(|level| (meta::name(level).to_owned(), PriorityLevelConfig::from_object(level))).collect();
        Self { schemas, levels }
    }
}

fn uid_header(object: &Value) -> HeaderValue {
    HeaderValue::from_str(meta::uid(object)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn string_list(value: &Value, field: &str) -> Vec<String> {
    meta::list_at(value, &[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl FlowSchema {
    fn from_object(object: &Value) -> Self {
        let spec = &object["spec"];
        Self {
            name: meta::name(object).into(),
            uid: uid_header(object),
            level: meta::string_at(spec, &["priorityLevelConfiguration", "name"]).to_owned(),
            precedence: meta::integer_at(spec, &["matchingPrecedence"]),
            distinguisher: match meta::string_at(spec, &["distinguisherMethod", "type"]) {
                "ByUser" => FlowDistinguisherMethod::User,
                "ByNamespace" => FlowDistinguisherMethod::Namespace,
                _ => FlowDistinguisherMethod::None,
            },
            rules: meta::list_at(spec, &["rules"]).iter().map(PolicyRule::from_value).collect(),
        }
    }
}

impl PolicyRule {
    fn from_value(rule: &Value) -> Self {
        let resource = |rule: &Value| ResourcePolicyRule {
            verbs: string_list(rule, "verbs"),
            groups: string_list(rule, "apiGroups"),
            resources: string_list(rule, "resources"),
            cluster: rule["clusterScope"] == true,
            namespaces: string_list(rule, "namespaces"),
        };
        let path = |rule: &Value| NonResourcePolicyRule {
            verbs: string_list(rule, "verbs"),
            paths: string_list(rule, "nonResourceURLs"),
        };
        Self {
            subjects: meta::list_at(rule, &["subjects"]).iter().filter_map(RuleSubject::from_value).collect(),
            resources: meta::list_at(rule, &["resourceRules"]).iter().map(resource).collect(),
            paths: meta::list_at(rule, &["nonResourceRules"]).iter().map(path).collect(),
        }
    }
}

impl RuleSubject {
    fn from_value(subject: &Value) -> Option<Self> {
        let text = |path: &[&str]| meta::string_at(subject, path).to_owned();
        match meta::string_at(subject, &["kind"]) {
            "User" => Some(RuleSubject::User(text(&["user", "name"]))),
            "Group" => Some(RuleSubject::Group(text(&["group", "name"]))),
            "ServiceAccount" => {
                Some(RuleSubject::Account(text(&["serviceAccount", "namespace"]), text(&["serviceAccount", "name"])))
            }
            _ => None,
        }
    }
}

impl PriorityLevelConfig {
    fn from_object(object: &Value) -> Self {
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
            uid: uid_header(object),
            exempt,
            shares: number("nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 }),
            lendable: number("lendablePercent").unwrap_or(0).min(100),
            borrows: number("borrowingLimitPercent"),
            queuing: waits.then(|| QueuingConfig {
                queues,
                hand: count("handSize").min(queues),
                length: count("queueLengthLimit"),
            }),
        }
    }
}
