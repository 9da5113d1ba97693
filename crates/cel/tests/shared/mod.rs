//! The world in which expressions are tried: a typed variable `self` after an OpenAPI schema, an untyped `object`, and an
//! authorizer with simple rules. The program that records verdicts has the same.

use std::{fmt, sync::Arc};

use ferry_cel::{
    Authorizer, Check, Decision, Environment, Form, ObjectType, Range, Schema, Sizes, Target, Type, Value,
};
use serde_json::{Map as Object, Value as Json, json};

pub struct World {
    pub environment: Environment,
    schema: Arc<Node>,
    this: Json,
    object: Json,
}

impl World {
    pub fn new() -> Self {
        let read = |text: &str| serde_json::from_str::<Json>(text).expect("test data is JSON");
        let mut document = read(include_str!("../recorded/schema.json"));
        let text = json!({"type": "string"});
        let properties = document["properties"].as_object_mut().expect("the schema has properties");
        properties.insert("apiVersion".into(), text.clone());
        properties.insert("kind".into(), text.clone());
        let meta = json!({"type": "object", "properties": {"name": text, "generateName": text}});
        properties.insert("metadata".into(), meta);
        let schema = Arc::new(Node::new(&document));
        let environment = Environment::new()
            .variable("self", schema.ty("Self"))
            .variable("object", Type::Dyn)
            .variable("authorizer", Type::AUTHORIZER)
            .json_patch();
        let (this, object) =
            (read(include_str!("../recorded/self.json")), read(include_str!("../recorded/object.json")));
        Self { environment, schema, this, object }
    }

    pub fn variables(&self) -> [(&str, Value<'_>); 3] {
        [
            ("self", Value::document(&self.this, Some(&*self.schema)).expect("the object fits its schema")),
            ("object", Value::document(&self.object, None).expect("any object is fine")),
            ("authorizer", Value::authorizer(Arc::new(Rules))),
        ]
    }
}

impl Sizes for World {
    fn size(&self, path: &[&str]) -> Option<Range> {
        let (first, rest) = path.split_first()?;
        if *first != "self" {
            return None;
        }
        let mut at: &Node = &self.schema;
        for step in rest {
            at = match *step {
                "@items" | "@values" => at.element.as_deref()?,
                "@keys" if matches!(at.form, Form::Map) => return Some(Range { min: 0, max: 0 }),
                "@keys" | "@indices" => return None,
                name => at.fields.get(&*ferry_cel::unescape(name)?)?,
            };
        }
        Some(Range { min: 0, max: at.most })
    }
}

/// A node of an OpenAPI schema, with what Kubernetes derives from it.
#[derive(Debug)]
struct Node {
    form: Form,
    nullable: bool,
    fields: std::collections::BTreeMap<String, Arc<Node>>,
    element: Option<Arc<Node>>,
    keys: Vec<String>,
    most: u64,
    /// The size of the smallest JSON that fits.
    least: u64,
}

const REQUEST: u64 = 3 * 1024 * 1024;

impl Node {
    fn new(schema: &Json) -> Self {
        let form = form(schema);
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
            Form::List | Form::SetList | Form::MapList => (2, limit("maxItems").unwrap_or((REQUEST - 2) / (each + 1))),
            Form::Map => (2, limit("maxProperties").unwrap_or((REQUEST - 2) / (each + 6))),
            Form::Bytes => (2, limit("maxLength").unwrap_or(REQUEST - 2)),
            Form::Duration => (3, 32),
            Form::Date => (12, 12),
            Form::DateTime => (21, 32),
            Form::String | Form::IntOrString => {
                let most = limit("maxLength").map(|most| most * 4).or_else(longest).unwrap_or(REQUEST - 2);
                (if form == Form::String { 2 } else { 1 }, most)
            }
            Form::Boolean => (4, 0),
            Form::Number | Form::Integer => (1, 0),
            _ => {
                let required = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
                let size = |name: &str| name.len() as u64 + fields.get(name).map_or(0, |field| field.least) + 4;
                (2 + required.map(size).sum::<u64>(), 0)
            }
        };
        let nullable = schema["nullable"] == true;
        Self { form, nullable, fields, element, keys, most, least }
    }

    fn ty(self: &Arc<Self>, name: &str) -> Type {
        match self.form {
            Form::Object | Form::Opaque => Type::object(Named { name: name.into(), node: self.clone() }),
            Form::Map => Type::map(Type::String, self.element_type(&format!("{name}.@elem"))),
            Form::List | Form::SetList | Form::MapList => Type::list(self.element_type(&format!("{name}.@idx"))),
            Form::String => Type::String,
            Form::Bytes => Type::Bytes,
            Form::Date | Form::DateTime => Type::Timestamp,
            Form::Duration => Type::Duration,
            Form::Number => Type::Double,
            Form::Integer => Type::Int,
            Form::Boolean => Type::Bool,
            Form::IntOrString | Form::Unknown | Form::Open => Type::Dyn,
        }
    }

    fn element_type(&self, name: &str) -> Type {
        self.element.as_ref().map_or(Type::Dyn, |element| element.ty(name))
    }
}

fn form(schema: &Json) -> Form {
    if schema["x-kubernetes-int-or-string"] == true {
        return Form::IntOrString;
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("object"), _) if schema.get("properties").is_some() => Form::Object,
        (Some("object"), _) if schema["additionalProperties"].is_object() => Form::Map,
        (Some("object"), _) => Form::Opaque,
        (Some("array"), _) => match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Form::SetList,
            Some("map") => Form::MapList,
            _ => Form::List,
        },
        (Some("string"), Some("byte")) => Form::Bytes,
        (Some("string"), Some("date")) => Form::Date,
        (Some("string"), Some("date-time")) => Form::DateTime,
        (Some("string"), Some("duration")) => Form::Duration,
        (Some("string"), _) => Form::String,
        (Some("number"), _) => Form::Number,
        (Some("integer"), _) => Form::Integer,
        (Some("boolean"), _) => Form::Boolean,
        _ => Form::Unknown,
    }
}

impl Schema for Node {
    fn form(&self) -> Form {
        self.form
    }

    fn nullable(&self) -> bool {
        self.nullable
    }

    fn property(&self, name: &str) -> Option<&dyn Schema> {
        self.fields.get(name).map(|node| &**node as &dyn Schema)
    }

    fn element(&self) -> Option<&dyn Schema> {
        self.element.as_deref().map(|node| node as &dyn Schema)
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }
}

struct Named {
    name: String,
    node: Arc<Node>,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl ObjectType for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn field(&self, name: &str) -> Option<Type> {
        let field = self.node.fields.get(&*ferry_cel::unescape(name)?)?;
        Some(field.ty(&format!("{}.{name}", self.name)))
    }
}

/// Alice may get everything.
struct Rules;

impl Authorizer for Rules {
    fn check(&self, check: &Check<'_>) -> Decision {
        let user = match check.service_account {
            Some((namespace, name)) => format!("system:serviceaccount:{namespace}:{name}"),
            None => "alice".into(),
        };
        if check.verb == "fail" {
            return Decision { error: Some(format!("no answer for {user}")), ..Decision::default() };
        }
        if user != "alice" {
            return Decision { reason: format!("not alice but {user}"), ..Decision::default() };
        }
        let reason = match check.target {
            Target::Path(path) => ["", "", "", "", "", path].join("|"),
            Target::Resource(at) => [&*at.group, &at.resource, &at.subresource, &at.namespace, &at.name, ""].join("|"),
        };
        match check.verb {
            "get" => Decision { allowed: true, reason, error: None },
            _ => Decision::default(),
        }
    }
}
