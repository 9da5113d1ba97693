//! Validates a value against a structural schema in the order and wording of upstream's library; used for CRD defaults.

use std::collections::HashSet;

use formats::{go_regexp, strfmt};

use super::prelude::*;
use crate::json;
use crate::render;

/// Validates a value at path `place`.
pub(super) fn check_value(schema: &FieldCursor, value: &Value, place: &FieldCursor, e: &mut ErrorList) {
    let mut found = ValidationOutcome::default();
    SchemaValidator { schema, place, name: "" }.validate(value, &mut found);
    e.append(&mut found.errors);
}

/// The errors and the number of matches: of failed alternatives, the best one is reported.
#[derive(Default)]
struct ValidationOutcome {
    errors: ErrorList,
    /// The formatted errors, for deduplication.
    seen: HashSet<String>,
    matches: usize,
}

impl ValidationOutcome {
    /// Adds an error once.
    fn add_error(&mut self, fault: FieldError) {
        if self.seen.insert(fault.to_string()) {
            self.errors.push(fault);
        }
    }

    fn merge_outcome(&mut self, other: ValidationOutcome) {
        self.matches += other.matches;
        other.errors.into_iter().for_each(|fault| self.add_error(fault));
    }
}

/// A check of values of some types.
type ValueCheck<'a> = fn(&SchemaValidator<'a>, &Value, &mut ValidationOutcome);

/// The bound of a numeric keyword.
struct NumericLimit {
    number: f64,
    shown: String,
    /// The rendering of the number itself.
    bad: BadValue,
    /// Whether integers are compared.
    whole: bool,
}

/// A schema with the path of the value: errors are reported at `place` plus `name`.
struct SchemaValidator<'a> {
    schema: &'a FieldCursor<'a, 'a>,
    place: &'a FieldCursor<'a, 'a>,
    name: &'a str,
}

impl<'a> SchemaValidator<'a> {
    fn validate(&self, value: &Value, out: &mut ValidationOutcome) {
        let says = |field: &str| !self.schema.get(field).is_empty();
        let checks: [(bool, ValueCheck<'a>); 7] = [
            (value.is_null() || says("type") || says("format"), Self::check_type),
            (!value.is_null(), Self::check_composition),
            (value.is_string(), Self::check_string),
            (value.is_number(), Self::check_number),
            (value.is_array(), Self::check_array),
            (true, Self::check_enum),
            (value.is_object(), Self::check_object),
        ];
        let counts = usize::from(!value.is_null());
        for (_, check) in checks.iter().filter(|(applies, _)| *applies) {
            check(self, value, out);
            out.matches += counts;
        }
        out.matches += counts;
    }

    /// Validates by another schema.
    fn validate_with(&self, schema: &FieldCursor, name: &str, value: &Value) -> ValidationOutcome {
        let mut out = ValidationOutcome::default();
        SchemaValidator { schema, place: self.place, name }.validate(value, &mut out);
        out
    }

    fn error_path(&self, name: &str) -> String {
        let name = name.trim_start_matches('.');
        if name.is_empty() { self.place.to_string() } else { format!("{}.{name}", self.place) }
    }

    fn push_error(&self, out: &mut ValidationOutcome, fault: FieldErrorType, message: String) {
        out.add_error(FieldError::new(self.error_path(self.name), fault, message));
    }

    fn push_invalid(&self, out: &mut ValidationOutcome, bad: impl Into<BadValue>, what: String) {
        self.push_error(out, FieldErrorType::Invalid(bad.into()), format!("{} in body {what}", self.name));
    }

    /// Reports a type mismatch, with a type name or value.
    fn push_type_mismatch(&self, out: &mut ValidationOutcome, wanted: &str, shown: &str) {
        let message = format!("{} in body must be of type {wanted}: {shown:?}", self.name);
        self.push_error(out, FieldErrorType::TypeInvalid(shown.into()), message);
    }

    /// Reports a composition error, at the path itself.
    fn push_composition_error(&self, out: &mut ValidationOutcome, what: String) {
        let message = format!("{:?} {what}", self.name);
        out.add_error(FieldError::new(self.place.to_string(), FieldErrorType::Invalid("".into()), message));
    }

    fn numeric_keyword(&self, name: &str) -> Option<f64> {
        self.schema.get(name).value.as_f64()
    }

    fn check_type(&self, value: &Value, out: &mut ValidationOutcome) {
        let (wanted, found, format) = (self.schema.text_at("type"), json_type(value), self.schema.text_at("format"));
        let fits = match value {
            Value::Null => wanted.is_empty() || self.schema.get("nullable").is_true(),
            Value::String(_) | Value::Array(_) if !format.is_empty() && !matches!(wanted, "number" | "integer") => true,
            Value::Number(number) => {
                let whole = !number.is_f64() || number.as_f64().is_some_and(is_integral);
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
            self.push_type_mismatch(out, format, guessed);
        } else {
            self.push_type_mismatch(out, wanted, found);
        }
    }

    /// Checks anyOf, oneOf, allOf and not.
    fn check_composition(&self, value: &Value, out: &mut ValidationOutcome) {
        let mut whole = ValidationOutcome::default();
        let by_each = |field: &str| -> Vec<ValidationOutcome> {
            self.schema.get(field).items().map(|schema| self.validate_with(&schema, self.name, value)).collect()
        };
        let (any, one, all) = (by_each("anyOf"), by_each("oneOf"), by_each("allOf"));
        let right = |list: &[ValidationOutcome]| list.iter().filter(|outcome| outcome.errors.is_empty()).count();
        if !any.is_empty() {
            if right(&any) == 0 {
                self.push_composition_error(&mut whole, "must validate at least one schema (anyOf)".to_owned());
            }
            whole.merge_outcome(best_outcome(any));
        }
        if !one.is_empty() {
            let count = right(&one);
            let told =
                if count == 0 { "Found none valid".to_owned() } else { format!("Found {count} valid alternatives") };
            if count != 1 {
                self.push_composition_error(
                    &mut whole,
                    format!("must validate one and only one schema (oneOf). {told}"),
                );
            }
            if count < 2 {
                whole.merge_outcome(best_outcome(one));
            }
        }
        if !all.is_empty() {
            let (count, total) = (right(&all), all.len());
            all.into_iter().for_each(|outcome| whole.merge_outcome(outcome));
            if count < total {
                let told = if count == 0 { ". None validated" } else { "" };
                self.push_composition_error(&mut whole, format!("must validate all the schemas (allOf){told}"));
            }
        }
        let not = self.schema.get("not");
        if not.exists() && self.validate_with(&not, self.name, value).errors.is_empty() {
            self.push_composition_error(&mut whole, "must not validate the schema (not)".to_owned());
        }
        whole.matches += 1;
        out.merge_outcome(whole);
    }

    /// Checks length, then pattern (the first error counts), and the format of a string.
    fn check_string(&self, value: &Value, out: &mut ValidationOutcome) {
        let text = value.as_str().unwrap_or_default();
        let length = text.chars().count() as f64;
        if let Some(most) = self.numeric_keyword("maxLength").filter(|most| length > *most) {
            let unit = if most == 1.0 { "byte" } else { "bytes" };
            self.push_error(out, FieldErrorType::TooLong, format!("may not be more than {most} {unit}"));
        } else if let Some(least) = self.numeric_keyword("minLength").filter(|least| length < *least) {
            self.push_invalid(out, text, format!("should be at least {least} chars long"));
        } else if let Some(wanted) = Some(self.schema.text_at("pattern")).filter(|wanted| !wanted.is_empty()) {
            match go_regexp::compile_regexp(wanted) {
                Ok(regex) if regex.is_match(text) => {}
                Ok(_) => self.push_invalid(out, text, format!("should match '{wanted}'")),
                Err(why) => {
                    self.push_invalid(out, text, format!("should match '{wanted}, but pattern is invalid: {why}'"))
                }
            }
        }
        let format = self.schema.text_at("format");
        if let Some(right) = strfmt::matches_format(format, text) {
            out.matches += 1;
            if !right {
                self.push_type_mismatch(out, format, text);
            }
        }
    }

    /// Checks the format and the bounds of a number.
    fn check_number(&self, value: &Value, out: &mut ValidationOutcome) {
        let Some(number) = value.as_f64() else { return };
        if !self.fits_format(number) {
            out.add_error(self.format_error("Checked"));
        }
        if let Some(factor) = self.numeric_limit("multipleOf", "MultipleOf", value, out) {
            let times = if factor.number < 1.0 { 1.0 / factor.number * number } else { number / factor.number };
            let is_multiple = if factor.whole { number % factor.number == 0.0 } else { is_integral(times) };
            if factor.number <= 0.0 {
                let message =
                    format!("factor MultipleOf declared for {} must be positive: {}", self.name, factor.shown);
                self.push_error(out, FieldErrorType::Invalid(BadValue::Rendered(factor.shown)), message);
            } else if !is_multiple {
                self.push_invalid(out, factor.bad, format!("should be a multiple of {}", factor.shown));
            }
        }
        for (field, exclusive, than, what) in [
            ("minimum", "exclusiveMinimum", "greater", "Minimum boundary"),
            ("maximum", "exclusiveMaximum", "less", "Maximum boundary"),
        ] {
            let Some(limit) = self.numeric_limit(field, what, value, out) else { continue };
            let strict = self.schema.get(exclusive).is_true();
            let beyond = if than == "less" { number > limit.number } else { number < limit.number };
            if beyond || strict && number == limit.number {
                let equal = if strict { "" } else { " or equal to" };
                self.push_invalid(out, limit.bad, format!("should be {than} than{equal} {}", limit.shown));
            }
        }
        out.matches += 1;
    }

    /// Returns the bound of a keyword: an integer for integers, unless it does not fit the type.
    fn numeric_limit(
        &self,
        field: &str,
        what: &str,
        value: &Value,
        out: &mut ValidationOutcome,
    ) -> Option<NumericLimit> {
        let number = self.numeric_keyword(field)?;
        let fits = self.fits_format(number);
        if !fits {
            out.add_error(self.format_error(what));
        }
        Some(if fits && !value.is_f64() {
            NumericLimit {
                number: number.trunc(),
                shown: number.trunc().to_string(),
                bad: value.clone().into(),
                whole: true,
            }
        } else {
            let bad = BadValue::Rendered(json::go_float(value.as_f64().unwrap_or_default()));
            NumericLimit { number, shown: json::go_float(number), bad, whole: false }
        })
    }

    fn fits_format(&self, number: f64) -> bool {
        let (least, most) = match (self.schema.text_at("type"), self.number_format()) {
            ("integer", "int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
            ("integer", _) => (-(2f64.powi(63)), 2f64.powi(63)),
            ("number", "float") => return number.abs() <= f64::from(f32::MAX),
            _ => return true,
        };
        number.fract() == 0.0 && (least..=most).contains(&number)
    }

    /// The numeric format of the type.
    fn number_format(&self) -> &str {
        match (self.schema.text_at("type"), self.schema.text_at("format")) {
            ("integer", format @ ("int32" | "int64")) | ("number", format @ ("float" | "double")) => format,
            _ => "",
        }
    }

    fn format_error(&self, what: &str) -> FieldError {
        let format = match self.number_format() {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        let kind = self.schema.text_at("type");
        let message = format!("{what} value must be of type {kind} {format} in {}", self.name);
        FieldError::new(self.place.to_string(), FieldErrorType::Invalid("".into()), message)
    }

    /// Checks the number of elements or properties.
    fn check_size(&self, count: usize, [least, most, what]: [&str; 3], out: &mut ValidationOutcome) {
        let bound = |name: &str| self.schema.get(name).value.as_u64().map(|bound| bound as usize);
        if let Some(least) = bound(least).filter(|least| count < *least) {
            self.push_invalid(out, count, format!("should have at least {least} {what}"));
        }
        if let Some(most) = bound(most).filter(|most| count > *most) {
            let unit = if most == 1 { "item" } else { "items" };
            self.push_error(out, FieldErrorType::TooMany(count), format!("must have at most {most} {unit}"));
        }
    }

    fn check_array(&self, value: &Value, out: &mut ValidationOutcome) {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        let inner = self.schema.get("items");
        for (index, item) in items.iter().enumerate().filter(|_| inner.value.is_object()) {
            out.merge_outcome(self.validate_with(&inner, &format!("{}[{index}]", self.name), item));
        }
        self.check_size(items.len(), ["minItems", "maxItems", "items"], out);
        out.matches += 1;
    }

    fn check_enum(&self, value: &Value, out: &mut ValidationOutcome) {
        let allowed = self.schema.get("enum");
        if !allowed.is_empty() && !allowed.items().any(|one| enum_equals(value, one.value)) {
            let shown =
                |one: FieldCursor| one.value.as_str().map_or_else(|| render::render_json(one.value), str::to_owned);
            let texts: Vec<String> = allowed.items().map(shown).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            out.add_error(FieldError::not_supported(self.error_path(self.name), value.clone(), &texts));
        }
    }

    fn check_object(&self, value: &Value, out: &mut ValidationOutcome) {
        let fields = value.as_object().into_iter().flatten();
        self.check_size(fields.clone().count(), ["minProperties", "maxProperties", "properties"], out);
        let (properties, others) = (self.schema.get("properties"), self.schema.get("additionalProperties"));
        let (known, unknown): (Vec<_>, Vec<_>) = fields.partition(|(name, _)| properties.entry(name).exists());
        for (name, value) in unknown {
            match others.value {
                Value::Object(_) => {
                    out.merge_outcome(self.validate_with(&others, &format!("{}.{name}", self.name), value))
                }
                Value::Bool(false) => {
                    let message = format!("{}.{name} in body is a forbidden property", self.name);
                    self.push_error(out, FieldErrorType::Invalid(name.as_str().into()), message);
                }
                _ => {}
            }
        }
        for (name, value) in known {
            let path = if self.name.is_empty() { name.clone() } else { format!("{}.{name}", self.name) };
            out.merge_outcome(self.validate_with(&properties.entry(name), &path, value));
        }
        for name in self.schema.get("required").texts().filter(|name| value.get(name).is_none()) {
            out.add_error(FieldError::required(self.error_path(&format!("{}.{name}", self.name)), ""));
        }
    }
}

/// Returns the first outcome without errors, or the first with most matches.
fn best_outcome(mut list: Vec<ValidationOutcome>) -> ValidationOutcome {
    let best = list.iter().position(|outcome| outcome.errors.is_empty());
    let most = list.iter().map(|outcome| outcome.matches).max();
    let at = best.or_else(|| list.iter().position(|outcome| Some(outcome.matches) == most));
    list.swap_remove(at.unwrap_or(0))
}

/// Compares with an enum value: numbers are converted as in Go, and null equals nothing.
fn enum_equals(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Number(value), Value::Number(wanted)) if wanted.is_f64() => value.as_f64() == wanted.as_f64(),
        (Value::Number(value), Value::Number(wanted)) => value.as_f64().map(f64::trunc) == wanted.as_f64(),
        (Value::Null, _) => false,
        _ => value == wanted,
    }
}

/// Whether a float is so close to an integer that upstream treats it as one.
fn is_integral(number: f64) -> bool {
    let whole = number.trunc();
    let near = whole != 0.0 && (number - whole).abs() / (number.abs() + whole.abs()) < 1e-9;
    number.abs() < 2f64.powi(53) && (number == whole || near)
}

fn json_type(value: &Value) -> &'static str {
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

    /// Returns the errors about a default.
    fn errors_for(schema: Value, value: Value) -> Vec<String> {
        let (object, mut e) = (json!({"default": value}), Vec::new());
        let top = FieldCursor::for_create(&object);
        super::check_value(&FieldCursor::for_create(&schema), &object["default"], &top.get("default"), &mut e);
        e.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_are_validated_like_upstream() {
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
            assert_eq!(errors_for(schema.clone(), value.clone()), want, "{value}");
        }
    }

    #[test]
    fn failed_composition_reports_the_best_alternative() {
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
            assert_eq!(errors_for(json!({field: [far, near]}), value.clone()), [want, fault]);
            assert!(errors_for(json!({field: [far, {"minProperties": 3}]}), value.clone()).is_empty());
        }
        let both = errors_for(json!({"oneOf": [{}, {}]}), value.clone());
        assert!(both[0].ends_with("(oneOf). Found 2 valid alternatives"), "{both:?}");
        let all = errors_for(json!({"allOf": [{}, near]}), value.clone());
        assert_eq!(all, [fault, r#"default: Invalid value: "": "" must validate all the schemas (allOf)"#]);
        let not = errors_for(json!({"not": {"required": ["a"]}}), value);
        assert_eq!(not, [r#"default: Invalid value: "": "" must not validate the schema (not)"#]);
    }

    /// Compares with recorded results of upstream's library.
    #[test]
    fn recorded_values_have_upstreams_errors() {
        for line in include_str!("../../tests/custom_values.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let mut want: Vec<&str> = case["told"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let mut got = errors_for(case["schema"].clone(), case["value"].clone());
            // Go iterates over fields in random order.
            want.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, want, "{line}");
        }
    }
}
