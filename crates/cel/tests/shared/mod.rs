//! The test environment: a variable `self` typed by an OpenAPI schema, an untyped `object`, and an authorizer with simple
//! rules. `tests/go-cel` records its results with the same environment.

use std::{fmt, sync::Arc};

use ferry_cel::{
    AuthorizationCheck, AuthorizationDecision, Authorizer, CheckTarget, Environment, Estimate, ObjectType, Schema,
    SchemaType, SizeEstimator, Type, Value,
};
use serde_json::{Map as Object, Value as Json, json};

pub struct TestFixture {
    pub environment: Environment,
    schema: Arc<SchemaNode>,
    this: Json,
    object: Json,
}

impl TestFixture {
    pub fn new() -> Self {
        let read = |text: &str| serde_json::from_str::<Json>(text).expect("test data is JSON");
        let mut document = read(include_str!("../recorded/schema.json"));
        let text = json!({"type": "string"});
        let properties = document["properties"].as_object_mut().expect("the schema has properties");
        properties.insert("apiVersion".into(), text.clone());
        properties.insert("kind".into(), text.clone());
        let meta = json!({"type": "object", "properties": {"name": text, "generateName": text}});
        properties.insert("metadata".into(), meta);
        let schema = Arc::new(SchemaNode::new(&document));
        let environment = Environment::new()
            .with_variable("self", schema.cel_type("Self"))
            .with_variable("object", Type::Dyn)
            .with_variable("authorizer", Type::AUTHORIZER)
            .with_json_patch_library();
        let (this, object) =
            (read(include_str!("../recorded/self.json")), read(include_str!("../recorded/object.json")));
        Self { environment, schema, this, object }
    }

    pub fn variable_values(&self) -> [(&str, Value<'_>); 3] {
        [
            ("self", Value::from_json(&self.this, Some(&*self.schema)).expect("the object fits its schema")),
            ("object", Value::from_json(&self.object, None).expect("any object is fine")),
            ("authorizer", Value::from_authorizer(Arc::new(TestAuthorizer))),
        ]
    }
}

impl SizeEstimator for TestFixture {
    fn estimate_size(&self, path: &[&str]) -> Option<Estimate> {
        let (first, rest) = path.split_first()?;
        if *first != "self" {
            return None;
        }
        let mut at: &SchemaNode = &self.schema;
        for step in rest {
            at = match *step {
                "@items" | "@values" => at.element.as_deref()?,
                "@keys" if matches!(at.form, SchemaType::Map) => return Some(Estimate { min: 0, max: 0 }),
                "@keys" | "@indices" => return None,
                name => at.fields.get(&*ferry_cel::unescape_identifier(name)?)?,
            };
        }
        Some(Estimate { min: 0, max: at.most })
    }
}

/// A node of an OpenAPI schema with its derived size bounds.
#[derive(Debug)]
struct SchemaNode {
    form: SchemaType,
    nullable: bool,
    fields: std::collections::BTreeMap<String, Arc<SchemaNode>>,
    element: Option<Arc<SchemaNode>>,
    keys: Vec<String>,
    most: u64,
    /// The size of the smallest conforming JSON.
    least: u64,
}

const REQUEST: u64 = 3 * 1024 * 1024;

impl SchemaNode {
    fn new(schema: &Json) -> Self {
        let form = parse_schema_type(schema);
        let fields: std::collections::BTreeMap<_, _> = schema["properties"]
            .as_object()
            .unwrap_or(&Object::new())
            .iter()
            .map(|(name, schema)| (name.clone(), Arc::new(Self::new(schema))))
            .collect();
        let element = ["items", "additionalProperties"].iter().find_map(|key| schema.get(*key));
        let element = element.filter(|schema| schema.is_object()).map(|schema| Arc::new(Self::new(schema)));
        let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
        let keys = keys.filter_map(|key| key.as_str().map(String::from)).collect();
        let limit = |key: &str| schema[key].as_u64();
        let each = element.as_ref().map_or(0, |element| element.least);
        let longest = || {
            let values = schema["enum"].as_array()?.iter();
            values.filter_map(|value| value.as_str().map(|text| text.len() as u64)).max()
        };
        let (least, most) = match form {
            SchemaType::List | SchemaType::SetList | SchemaType::MapList => {
                (2, limit("maxItems").unwrap_or((REQUEST - 2) / (each + 1)))
            }
            SchemaType::Map => (2, limit("maxProperties").unwrap_or((REQUEST - 2) / (each + 6))),
            SchemaType::Bytes => (2, limit("maxLength").unwrap_or(REQUEST - 2)),
            SchemaType::Duration => (3, 32),
            SchemaType::Date => (12, 12),
            SchemaType::DateTime => (21, 32),
            SchemaType::String | SchemaType::IntOrString => {
                let most = limit("maxLength").map(|most| most * 4).or_else(longest).unwrap_or(REQUEST - 2);
                (if form == SchemaType::String { 2 } else { 1 }, most)
            }
            SchemaType::Boolean => (4, 0),
            SchemaType::Number | SchemaType::Integer => (1, 0),
            _ => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
                let size = |name: &str| name.len() as u64 + fields.get(name).map_or(0, |field| field.least) + 4;
                (2 + required.map(size).sum::<u64>(), 0)
            }
        };
        let nullable = schema["nullable"] == true;
        Self { form, nullable, fields, element, keys, most, least }
    }

    fn cel_type(self: &Arc<Self>, name: &str) -> Type {
        match self.form {
            SchemaType::Object | SchemaType::Opaque => {
                Type::object_of(SchemaObjectType { name: name.into(), node: self.clone() })
            }
            SchemaType::Map => Type::map_of(Type::String, self.element_type(&format!("{name}.@elem"))),
            SchemaType::List | SchemaType::SetList | SchemaType::MapList => {
                Type::list_of(self.element_type(&format!("{name}.@idx")))
            }
            SchemaType::String => Type::String,
            SchemaType::Bytes => Type::Bytes,
            SchemaType::Date | SchemaType::DateTime => Type::Timestamp,
            SchemaType::Duration => Type::Duration,
            SchemaType::Number => Type::Double,
            SchemaType::Integer => Type::Int,
            SchemaType::Boolean => Type::Bool,
            SchemaType::IntOrString | SchemaType::Unknown | SchemaType::Open => Type::Dyn,
        }
    }

    fn element_type(&self, name: &str) -> Type {
        self.element.as_ref().map_or(Type::Dyn, |element| element.cel_type(name))
    }
}

fn parse_schema_type(schema: &Json) -> SchemaType {
    if schema["x-kubernetes-int-or-string"] == true {
        return SchemaType::IntOrString;
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("object"), _) if schema.get("properties").is_some() => SchemaType::Object,
        (Some("object"), _) if schema["additionalProperties"].is_object() => SchemaType::Map,
        (Some("object"), _) => SchemaType::Opaque,
        (Some("array"), _) => match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => SchemaType::SetList,
            Some("map") => SchemaType::MapList,
            _ => SchemaType::List,
        },
        (Some("string"), Some("byte")) => SchemaType::Bytes,
        (Some("string"), Some("date")) => SchemaType::Date,
        (Some("string"), Some("date-time")) => SchemaType::DateTime,
        (Some("string"), Some("duration")) => SchemaType::Duration,
        (Some("string"), _) => SchemaType::String,
        (Some("number"), _) => SchemaType::Number,
        (Some("integer"), _) => SchemaType::Integer,
        (Some("boolean"), _) => SchemaType::Boolean,
        _ => SchemaType::Unknown,
    }
}

impl Schema for SchemaNode {
    fn schema_type(&self) -> SchemaType {
        self.form
    }

    fn is_nullable(&self) -> bool {
        self.nullable
    }

    fn property_schema(&self, name: &str) -> Option<&dyn Schema> {
        self.fields.get(name).map(|node| &**node as &dyn Schema)
    }

    fn element_schema(&self) -> Option<&dyn Schema> {
        self.element.as_deref().map(|node| node as &dyn Schema)
    }

    fn list_map_keys(&self) -> &[String] {
        &self.keys
    }
}

struct SchemaObjectType {
    name: String,
    node: Arc<SchemaNode>,
}

impl fmt::Debug for SchemaObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl ObjectType for SchemaObjectType {
    fn type_name(&self) -> &str {
        &self.name
    }

    fn field_type(&self, name: &str) -> Option<Type> {
        let field = self.node.fields.get(&*ferry_cel::unescape_identifier(name)?)?;
        Some(field.cel_type(&format!("{}.{name}", self.name)))
    }
}

/// Allows `alice` to `get` everything.
struct TestAuthorizer;

impl Authorizer for TestAuthorizer {
    fn authorize_check(&self, check: &AuthorizationCheck<'_>) -> AuthorizationDecision {
        let user = match check.service_account {
            Some((namespace, name)) => format!("system:serviceaccount:{namespace}:{name}"),
            None => "alice".into(),
        };
        if check.verb == "fail" {
            return AuthorizationDecision {
                error: Some(format!("no answer for {user}")),
                ..AuthorizationDecision::default()
            };
        }
        if user != "alice" {
            return AuthorizationDecision {
                reason: format!("not alice but {user}"),
                ..AuthorizationDecision::default()
            };
        }
        let reason = match check.target {
            CheckTarget::Path(path) => ["", "", "", "", "", path].join("|"),
            CheckTarget::Resource(at) => {
                [&*at.group, &at.resource, &at.subresource, &at.namespace, &at.name, ""].join("|")
            }
        };
        match check.verb {
            "get" => AuthorizationDecision { allowed: true, reason, error: None },
            _ => AuthorizationDecision::default(),
        }
    }
}
