//! A value by a structural schema, in the words of upstream's library: what custom resource definitions give as defaults.
//!
//! Patterns, formats and logical combinations of schemas are not looked at.

use super::prelude::*;

/// The faults of a value. They are told at `place` and the way from there, `name`, which messages tell too.
pub(super) fn check(schema: &At, value: &Value, place: &At, name: &str, e: &mut Errors) {
    let types = match (schema.get("x-kubernetes-int-or-string").is_true(), schema.text_of("type")) {
        (true, _) => vec!["integer", "string"],
        (false, "") => Vec::new(),
        (false, one) => vec![one],
    };
    let found = type_of(value);
    let fits = types.is_empty()
        || types.contains(&found)
        || found == "integer" && types.contains(&"number")
        || value.is_null() && schema.get("nullable").is_true()
        || value.is_string() && !schema.get("format").is_empty() && !types.contains(&"integer") && types != ["number"];
    let told = Told { place, name };
    if !fits {
        let message = told.text(format!("must be of type {}: {found:?}", types.join(",")));
        return told.fault(e, Fault::TypeInvalid(found.into()), message);
    }
    scalar(schema, value, &told, e);
    match value {
        Value::Array(items) => list(schema, items, &told, e),
        Value::Object(map) => object(schema, map, &told, e),
        _ => {}
    }
    let allowed = schema.get("enum");
    if allowed.exists() && !value.is_null() && !allowed.items().any(|one| one.value == value) {
        let shown = |one: At| one.value.as_str().map_or_else(|| one.value.to_string(), str::to_owned);
        let texts: Vec<String> = allowed.items().map(shown).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        e.push(FieldError::not_supported(told.path(), value.clone(), &texts));
    }
}

/// Where a fault is told.
struct Told<'a> {
    place: &'a At<'a, 'a>,
    name: &'a str,
}

impl Told<'_> {
    fn path(&self) -> String {
        if self.name.is_empty() { self.place.to_string() } else { format!("{}.{}", self.place, self.name) }
    }

    fn text(&self, what: String) -> String {
        format!("{} in body {what}", self.name)
    }

    fn fault(&self, e: &mut Errors, fault: Fault, message: String) {
        e.push(FieldError::new(self.path(), fault, message));
    }

    fn invalid(&self, e: &mut Errors, bad: impl Into<Bad>, what: String) {
        self.fault(e, Fault::Invalid(bad.into()), self.text(what));
    }

    /// The way to a part.
    fn part(&self, step: &str) -> String {
        if self.name.is_empty() { step.to_owned() } else { format!("{}.{step}", self.name) }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Bounds of lengths and numbers.
fn scalar(schema: &At, value: &Value, told: &Told, e: &mut Errors) {
    let bound = |name: &str| schema.get(name).value.as_f64();
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as f64;
        if let Some(most) = bound("maxLength").filter(|most| length > *most) {
            told.fault(e, Fault::TooLong, format!("may not be more than {most} bytes"));
        }
        if let Some(least) = bound("minLength").filter(|least| length < *least) {
            told.invalid(e, text, format!("should be at least {least} chars long"));
        }
    }
    let Some(number) = value.as_f64() else { return };
    for (field, exclusive, than, over) in
        [("maximum", "exclusiveMaximum", "less", true), ("minimum", "exclusiveMinimum", "greater", false)]
    {
        let strict = schema.get(exclusive).is_true();
        let beyond = |limit: &f64| if over { number > *limit } else { number < *limit } || strict && number == *limit;
        if let Some(limit) = bound(field).filter(beyond) {
            let equal = if strict { "" } else { " or equal to" };
            told.invalid(e, value.clone(), format!("should be {than} than{equal} {limit}"));
        }
    }
    if let Some(factor) = bound("multipleOf").filter(|factor| (number / factor).fract() != 0.0) {
        told.invalid(e, value.clone(), format!("should be a multiple of {factor}"));
    }
}

/// How many elements or fields there are.
fn size(schema: &At, count: usize, [most, least, what]: [&str; 3], told: &Told, e: &mut Errors) {
    let bound = |name: &str| schema.get(name).value.as_u64().map(|bound| bound as usize);
    if let Some(most) = bound(most).filter(|most| count > *most) {
        let unit = if most == 1 { "item" } else { "items" };
        told.fault(e, Fault::TooMany(count), format!("must have at most {most} {unit}"));
    }
    if let Some(least) = bound(least).filter(|least| count < *least) {
        told.invalid(e, count, format!("should have at least {least} {what}"));
    }
}

fn list(schema: &At, items: &[Value], told: &Told, e: &mut Errors) {
    let inner = schema.get("items");
    for (index, item) in items.iter().enumerate().filter(|_| inner.value.is_object()) {
        check(&inner, item, told.place, &format!("{}[{index}]", told.name), e);
    }
    size(schema, items.len(), ["maxItems", "minItems", "items"], told, e);
}

fn object(schema: &At, map: &crate::Map, told: &Told, e: &mut Errors) {
    size(schema, map.len(), ["maxProperties", "minProperties", "properties"], told, e);
    let (properties, others) = (schema.get("properties"), schema.get("additionalProperties"));
    for (name, value) in map {
        let property = properties.key(name);
        let inner = if property.exists() { &property } else { &others };
        if inner.value.is_object() {
            check(inner, value, told.place, &told.part(name), e);
        }
    }
    for name in schema.get("required").texts().filter(|name| !map.contains_key(*name)) {
        e.push(FieldError::required(Told { name: &told.part(name), ..*told }.path(), ""));
    }
}
