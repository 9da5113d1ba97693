//! A value by a structural schema, in the order and the words of upstream's library: what custom resource definitions give as
//! defaults.

use std::collections::HashSet;

use formats::{named, pattern};

use super::{prelude::*, render};
use crate::json;

/// The faults of a value that is at `place`.
pub(super) fn check(schema: &At, value: &Value, place: &At, e: &mut Errors) {
    let mut found = Outcome::default();
    Checker { schema, place, name: "" }.check(value, &mut found);
    e.append(&mut found.faults);
}

/// What was found, and how much of it was right: of alternatives that do not fit the faults of the nearest one are told.
#[derive(Default)]
struct Outcome {
    faults: Errors,
    /// The faults as they are told, each once.
    told: HashSet<String>,
    matches: usize,
}

impl Outcome {
    /// Adds a fault, unless it is known.
    fn add(&mut self, fault: FieldError) {
        if self.told.insert(fault.to_string()) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        other.faults.into_iter().for_each(|fault| self.add(fault));
    }
}

/// What is checked of values of some types.
type Check<'a> = fn(&Checker<'a>, &Value, &mut Outcome);

/// What a number is compared with.
struct Limit {
    number: f64,
    shown: String,
    /// How the number itself is shown.
    bad: Bad,
    /// Integers are compared.
    whole: bool,
}

/// A schema, and the value that it is about: faults are told at `place` and the way from there, `name`, which messages tell
/// too.
struct Checker<'a> {
    schema: &'a At<'a, 'a>,
    place: &'a At<'a, 'a>,
    name: &'a str,
}

impl<'a> Checker<'a> {
    fn check(&self, value: &Value, out: &mut Outcome) {
        let says = |field: &str| !self.schema.get(field).is_empty();
        let checks: [(bool, Check<'a>); 7] = [
            (value.is_null() || says("type") || says("format"), Self::form),
            (!value.is_null(), Self::alternatives),
            (value.is_string(), Self::text),
            (value.is_number(), Self::number),
            (value.is_array(), Self::list),
            (true, Self::one_of),
            (value.is_object(), Self::object),
        ];
        let counts = usize::from(!value.is_null());
        for (_, check) in checks.iter().filter(|(applies, _)| *applies) {
            check(self, value, out);
            out.matches += counts;
        }
        out.matches += counts;
    }

    /// As another schema says.
    fn by(&self, schema: &At, name: &str, value: &Value) -> Outcome {
        let mut out = Outcome::default();
        Checker { schema, place: self.place, name }.check(value, &mut out);
        out
    }

    fn path(&self, name: &str) -> String {
        let name = name.trim_start_matches('.');
        if name.is_empty() { self.place.to_string() } else { format!("{}.{name}", self.place) }
    }

    fn fault(&self, out: &mut Outcome, fault: Fault, message: String) {
        out.add(FieldError::new(self.path(self.name), fault, message));
    }

    fn invalid(&self, out: &mut Outcome, bad: impl Into<Bad>, what: String) {
        self.fault(out, Fault::Invalid(bad.into()), format!("{} in body {what}", self.name));
    }

    /// A value that does not fit, shown by a word or by itself.
    fn mismatch(&self, out: &mut Outcome, wanted: &str, shown: &str) {
        let message = format!("{} in body must be of type {wanted}: {shown:?}", self.name);
        self.fault(out, Fault::TypeInvalid(shown.into()), message);
    }

    /// A fault of the whole, which is told at the place itself.
    fn composed(&self, out: &mut Outcome, what: String) {
        let message = format!("{:?} {what}", self.name);
        out.add(FieldError::new(self.place.to_string(), Fault::Invalid("".into()), message));
    }

    fn bound(&self, name: &str) -> Option<f64> {
        self.schema.get(name).value.as_f64()
    }

    fn form(&self, value: &Value, out: &mut Outcome) {
        let (wanted, found, format) = (self.schema.text_of("type"), type_of(value), self.schema.text_of("format"));
        let fits = match value {
            Value::Null => wanted.is_empty() || self.schema.get("nullable").is_true(),
            Value::String(_) | Value::Array(_) if !format.is_empty() && !matches!(wanted, "number" | "integer") => true,
            Value::Number(number) => {
                let whole = !number.is_f64() || number.as_f64().is_some_and(is_integer);
                wanted == "number" || wanted == "integer" && whole
            }
            _ => wanted == found,
        };
        if fits {
            out.matches += 1;
            return;
        }
        let guessed = match value {
            Value::Number(number) if number.is_f64() => "float64",
            Value::Number(_) => "int64",
            _ => "",
        };
        let by_format = matches!(value, Value::Bool(_) | Value::Object(_) | Value::Number(_)) && !format.is_empty();
        if by_format && guessed != format {
            self.mismatch(out, format, guessed);
        } else {
            self.mismatch(out, wanted, found);
        }
    }

    /// At least one, exactly one, all or none of other schemas.
    fn alternatives(&self, value: &Value, out: &mut Outcome) {
        let mut whole = Outcome::default();
        let by_each = |field: &str| -> Vec<Outcome> {
            self.schema.get(field).items().map(|schema| self.by(&schema, self.name, value)).collect()
        };
        let (any, one, all) = (by_each("anyOf"), by_each("oneOf"), by_each("allOf"));
        let right = |list: &[Outcome]| list.iter().filter(|outcome| outcome.faults.is_empty()).count();
        if !any.is_empty() {
            if right(&any) == 0 {
                self.composed(&mut whole, "must validate at least one schema (anyOf)".to_owned());
            }
            whole.merge(nearest(any));
        }
        if !one.is_empty() {
            let count = right(&one);
            let told =
                if count == 0 { "Found none valid".to_owned() } else { format!("Found {count} valid alternatives") };
            if count != 1 {
                self.composed(&mut whole, format!("must validate one and only one schema (oneOf). {told}"));
            }
            if count < 2 {
                whole.merge(nearest(one));
            }
        }
        if !all.is_empty() {
            let (count, total) = (right(&all), all.len());
            all.into_iter().for_each(|outcome| whole.merge(outcome));
            if count < total {
                let told = if count == 0 { ". None validated" } else { "" };
                self.composed(&mut whole, format!("must validate all the schemas (allOf){told}"));
            }
        }
        let not = self.schema.get("not");
        if not.exists() && self.by(&not, self.name, value).faults.is_empty() {
            self.composed(&mut whole, "must not validate the schema (not)".to_owned());
        }
        whole.matches += 1;
        out.merge(whole);
    }

    /// The first fault of the length and the pattern of a text, and its format.
    fn text(&self, value: &Value, out: &mut Outcome) {
        let text = value.as_str().unwrap_or_default();
        let length = text.chars().count() as f64;
        if let Some(most) = self.bound("maxLength").filter(|most| length > *most) {
            let unit = if most == 1.0 { "byte" } else { "bytes" };
            self.fault(out, Fault::TooLong, format!("may not be more than {most} {unit}"));
        } else if let Some(least) = self.bound("minLength").filter(|least| length < *least) {
            self.invalid(out, text, format!("should be at least {least} chars long"));
        } else if let Some(wanted) = Some(self.schema.text_of("pattern")).filter(|wanted| !wanted.is_empty()) {
            match pattern::compile(wanted) {
                Ok(regex) if regex.is_match(text) => {}
                Ok(_) => self.invalid(out, text, format!("should match '{wanted}'")),
                Err(why) => self.invalid(out, text, format!("should match '{wanted}, but pattern is invalid: {why}'")),
            }
        }
        let format = self.schema.text_of("format");
        if let Some(right) = named::check(format, text) {
            out.matches += 1;
            if !right {
                self.mismatch(out, format, text);
            }
        }
    }

    /// Whether a number has room in its format, and its bounds.
    fn number(&self, value: &Value, out: &mut Outcome) {
        let Some(number) = value.as_f64() else { return };
        if !self.has_room(number) {
            out.add(self.cramped("Checked"));
        }
        if let Some(factor) = self.limit("multipleOf", "MultipleOf", value, out) {
            let times = if factor.number < 1.0 { 1.0 / factor.number * number } else { number / factor.number };
            let is_multiple = if factor.whole { number % factor.number == 0.0 } else { is_integer(times) };
            if factor.number <= 0.0 {
                let message =
                    format!("factor MultipleOf declared for {} must be positive: {}", self.name, factor.shown);
                self.fault(out, Fault::Invalid(Bad::Shown(factor.shown)), message);
            } else if !is_multiple {
                self.invalid(out, factor.bad, format!("should be a multiple of {}", factor.shown));
            }
        }
        for (field, exclusive, than, what) in [
            ("minimum", "exclusiveMinimum", "greater", "Minimum boundary"),
            ("maximum", "exclusiveMaximum", "less", "Maximum boundary"),
        ] {
            let Some(limit) = self.limit(field, what, value, out) else { continue };
            let strict = self.schema.get(exclusive).is_true();
            let beyond = if than == "less" { number > limit.number } else { number < limit.number };
            if beyond || strict && number == limit.number {
                let equal = if strict { "" } else { " or equal to" };
                self.invalid(out, limit.bad, format!("should be {than} than{equal} {}", limit.shown));
            }
        }
        out.matches += 1;
    }

    /// What a number is compared with: integers with integers, unless the type has no room for what the schema says.
    fn limit(&self, field: &str, what: &str, value: &Value, out: &mut Outcome) -> Option<Limit> {
        let number = self.bound(field)?;
        let fits = self.has_room(number);
        if !fits {
            out.add(self.cramped(what));
        }
        Some(if fits && !value.is_f64() {
            Limit { number: number.trunc(), shown: number.trunc().to_string(), bad: value.clone().into(), whole: true }
        } else {
            let bad = Bad::Shown(json::go_float(value.as_f64().unwrap_or_default()));
            Limit { number, shown: json::go_float(number), bad, whole: false }
        })
    }

    fn has_room(&self, number: f64) -> bool {
        let (least, most) = match (self.schema.text_of("type"), self.number_format()) {
            ("integer", "int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
            ("integer", _) => (-(2f64.powi(63)), 2f64.powi(63)),
            ("number", "float") => return number.abs() <= f64::from(f32::MAX),
            _ => return true,
        };
        number.fract() == 0.0 && (least..=most).contains(&number)
    }

    /// The format of the type, if it is one of numbers.
    fn number_format(&self) -> &str {
        match (self.schema.text_of("type"), self.schema.text_of("format")) {
            ("integer", format @ ("int32" | "int64")) | ("number", format @ ("float" | "double")) => format,
            _ => "",
        }
    }

    fn cramped(&self, what: &str) -> FieldError {
        let format = match self.number_format() {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        let kind = self.schema.text_of("type");
        let message = format!("{what} value must be of type {kind} {format} in {}", self.name);
        FieldError::new(self.place.to_string(), Fault::Invalid("".into()), message)
    }

    /// How many elements or fields there are.
    fn size(&self, count: usize, [least, most, what]: [&str; 3], out: &mut Outcome) {
        let bound = |name: &str| self.schema.get(name).value.as_u64().map(|bound| bound as usize);
        if let Some(least) = bound(least).filter(|least| count < *least) {
            self.invalid(out, count, format!("should have at least {least} {what}"));
        }
        if let Some(most) = bound(most).filter(|most| count > *most) {
            let unit = if most == 1 { "item" } else { "items" };
            self.fault(out, Fault::TooMany(count), format!("must have at most {most} {unit}"));
        }
    }

    fn list(&self, value: &Value, out: &mut Outcome) {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        let inner = self.schema.get("items");
        for (index, item) in items.iter().enumerate().filter(|_| inner.value.is_object()) {
            out.merge(self.by(&inner, &format!("{}[{index}]", self.name), item));
        }
        self.size(items.len(), ["minItems", "maxItems", "items"], out);
        out.matches += 1;
    }

    fn one_of(&self, value: &Value, out: &mut Outcome) {
        let allowed = self.schema.get("enum");
        if !allowed.is_empty() && !allowed.items().any(|one| is_like(value, one.value)) {
            let shown = |one: At| one.value.as_str().map_or_else(|| render::json(one.value), str::to_owned);
            let texts: Vec<String> = allowed.items().map(shown).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            out.add(FieldError::not_supported(self.path(self.name), value.clone(), &texts));
        }
    }

    fn object(&self, value: &Value, out: &mut Outcome) {
        let fields = value.as_object().into_iter().flatten();
        self.size(fields.clone().count(), ["minProperties", "maxProperties", "properties"], out);
        let (properties, others) = (self.schema.get("properties"), self.schema.get("additionalProperties"));
        let (known, unknown): (Vec<_>, Vec<_>) = fields.partition(|(name, _)| properties.key(name).exists());
        for (name, value) in unknown {
            match others.value {
                Value::Object(_) => out.merge(self.by(&others, &format!("{}.{name}", self.name), value)),
                Value::Bool(false) => {
                    let message = format!("{}.{name} in body is a forbidden property", self.name);
                    self.fault(out, Fault::Invalid(name.as_str().into()), message);
                }
                _ => {}
            }
        }
        for (name, value) in known {
            let path = if self.name.is_empty() { name.clone() } else { format!("{}.{name}", self.name) };
            out.merge(self.by(&properties.key(name), &path, value));
        }
        for name in self.schema.get("required").texts().filter(|name| value.get(name).is_none()) {
            out.add(FieldError::required(self.path(&format!("{}.{name}", self.name)), ""));
        }
    }
}

/// The first outcome without faults, or else the first of those that are right in most.
fn nearest(mut list: Vec<Outcome>) -> Outcome {
    let best = list.iter().position(|outcome| outcome.faults.is_empty());
    let most = list.iter().map(|outcome| outcome.matches).max();
    let at = best.or_else(|| list.iter().position(|outcome| Some(outcome.matches) == most));
    list.swap_remove(at.unwrap_or(0))
}

/// Whether a value is one of an enumeration: numbers are converted as Go converts them, and nothing is like null.
fn is_like(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Number(value), Value::Number(wanted)) if wanted.is_f64() => value.as_f64() == wanted.as_f64(),
        (Value::Number(value), Value::Number(wanted)) => value.as_f64().map(f64::trunc) == wanted.as_f64(),
        (Value::Null, _) => false,
        _ => value == wanted,
    }
}

/// Whether a float is so near to an integer that upstream takes it for one.
fn is_integer(number: f64) -> bool {
    let whole = number.trunc();
    let near = whole != 0.0 && (number - whole).abs() / (number.abs() + whole.abs()) < 1e-9;
    number.abs() < 2f64.powi(53) && (number == whole || near)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is told of a default in a schema.
    fn told(schema: Value, value: Value) -> Vec<String> {
        let (object, mut e) = (json!({"default": value}), Vec::new());
        let top = At::top(&object);
        super::check(&At::top(&schema), &object["default"], &top.get("default"), &mut e);
        e.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_are_checked_as_upstreams_library_does_it() {
        let text = json!({"type": "string", "maxLength": 3, "pattern": "^a+$"});
        let count = json!({"type": "integer", "format": "int32", "minimum": 2, "multipleOf": 2});
        let object = json!({"type": "object", "required": ["b"], "properties": {"a": {"type": "string", "format": "ipv4"}},
            "additionalProperties": {"type": "string"}});
        let cases: [(&Value, Value, &[&str]); 12] = [
            (&text, json!("aa"), &[]),
            (&text, json!("b"), &[r#"default: Invalid value: "b":  in body should match '^a+$'"#]),
            (&text, json!("bbbb"), &["default: Too long: may not be more than 3 bytes"]),
            (&text, json!(1), &[r#"default: Invalid value: "integer":  in body must be of type string: "integer""#]),
            (&text, json!(null), &[r#"default: Invalid value: "null":  in body must be of type string: "null""#]),
            (&count, json!(4), &[]),
            (
                &count,
                json!(1),
                &[
                    "default: Invalid value: 1:  in body should be a multiple of 2",
                    "default: Invalid value: 1:  in body should be greater than or equal to 2",
                ],
            ),
            (
                &count,
                json!(4_294_967_296_i64),
                &[r#"default: Invalid value: "": Checked value must be of type integer with format int32 in "#],
            ),
            (&count, json!(true), &[r#"default: Invalid value: "":  in body must be of type int32: """#]),
            (&object, json!({"b": "x", "a": "10.0.0.1"}), &[]),
            (
                &object,
                json!({"a": "x", "c": 1}),
                &[
                    r#"default.c: Invalid value: "integer": .c in body must be of type string: "integer""#,
                    r#"default.a: Invalid value: "x": a in body must be of type ipv4: "x""#,
                    "default.b: Required value",
                ],
            ),
            (
                &json!({"enum": ["a", 1]}),
                json!("b"),
                &[r#"default: Unsupported value: "b": supported values: "a", "1""#],
            ),
        ];
        for (schema, value, want) in cases {
            assert_eq!(told(schema.clone(), value.clone()), want, "{value}");
        }
    }

    #[test]
    fn alternatives_are_told_with_the_faults_of_the_nearest() {
        let far = json!({"properties": {"a": {"minimum": 5}, "b": {"minimum": 5}}});
        let near = json!({"properties": {"a": {"minimum": 5}, "b": {"minimum": 1}, "c": {"minimum": 1}}});
        let fault = "default.a: Invalid value: 2: a in body should be greater than or equal to 5";
        let value = json!({"a": 2, "b": 2, "c": 2});
        let cases = [
            ("anyOf", r#"default: Invalid value: "": "" must validate at least one schema (anyOf)"#),
            (
                "oneOf",
                r#"default: Invalid value: "": "" must validate one and only one schema (oneOf). Found none valid"#,
            ),
        ];
        for (field, want) in cases {
            assert_eq!(told(json!({field: [far, near]}), value.clone()), [want, fault]);
            assert!(told(json!({field: [far, {"minProperties": 3}]}), value.clone()).is_empty());
        }
        let both = told(json!({"oneOf": [{}, {}]}), value.clone());
        assert!(both[0].ends_with("(oneOf). Found 2 valid alternatives"), "{both:?}");
        let all = told(json!({"allOf": [{}, near]}), value.clone());
        assert_eq!(all, [fault, r#"default: Invalid value: "": "" must validate all the schemas (allOf)"#]);
        let not = told(json!({"not": {"required": ["a"]}}), value);
        assert_eq!(not, [r#"default: Invalid value: "": "" must not validate the schema (not)"#]);
    }

    /// What upstream's library said of made up schemas and values.
    #[test]
    fn recorded_values_are_told_the_same() {
        for line in include_str!("../../tests/custom_values.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let mut want: Vec<&str> = case["told"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let mut got = told(case["schema"].clone(), case["value"].clone());
            // Go walks through fields in no order.
            want.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, want, "{line}");
        }
    }
}
