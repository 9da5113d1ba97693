//! Decodes JSON text into the canonical object in one pass over the input: unknown fields are skipped, errors have
//! upstream's wording, and only canonical content is kept.

use super::{
    Canonicalizer, DecodeError, FieldContext, error, fill_zero_fields, is_written, scalar, unset_value, zero_value,
};
use crate::{
    Map, Value,
    budget::{MemoryBudget, OverBudget},
    field_path::FieldPath,
    json::{
        self, StrictViolation, json_type_name,
        reader::{JsonReader, ReadError, parse_number},
        scanner::SyntaxError,
    },
    schema::{FieldPresence, FieldType, StructType, TypeId, schema},
};

/// Decoding stopped: `None` for malformed JSON, otherwise the error.
struct DecodeHalt(Option<Box<DecodeError>>);

impl From<DecodeError> for DecodeHalt {
    fn from(error: DecodeError) -> Self {
        DecodeHalt(Some(Box::new(error)))
    }
}

impl From<OverBudget> for DecodeHalt {
    fn from(error: OverBudget) -> Self {
        DecodeError::from(error).into()
    }
}

impl From<SyntaxError> for DecodeHalt {
    fn from(_: SyntaxError) -> Self {
        DecodeHalt(None)
    }
}

impl From<ReadError> for DecodeHalt {
    fn from(stop: ReadError) -> Self {
        DecodeHalt(Option::<json::JsonError>::from(stop).map(|error| Box::new(error.into())))
    }
}

impl From<DecodeHalt> for Option<DecodeError> {
    fn from(halt: DecodeHalt) -> Self {
        halt.0.map(|error| *error)
    }
}

/// Decodes JSON as an object of a type and lists strict decoding violations.
pub(crate) fn decode_text(ty: TypeId, bytes: &[u8]) -> Result<(Value, Vec<StrictViolation>), DecodeError> {
    json::with_utf8_text(bytes, |text| -> Result<_, DecodeHalt> {
        let json = JsonReader::new(text, MemoryBudget::default());
        let mut typed = TypedReader { json, top: schema().get(ty), mismatch: None };
        let mut object = Value::Null;
        typed.read_root(&mut object)?;
        typed.json.scan.expect_end()?;
        match typed.mismatch {
            Some(error) => Err(error.into()),
            None => Ok((object, typed.json.violations)),
        }
    })
}

struct TypedReader<'t> {
    json: JsonReader<'t>,
    top: &'static StructType,
    /// The first value of a wrong type. As in Go, decoding continues: a malformed value takes precedence.
    mismatch: Option<DecodeError>,
}

impl TypedReader<'_> {
    fn read_root(&mut self, out: &mut Value) -> Result<(), DecodeHalt> {
        match self.json.scan.peek()? {
            b'{' => self.read_struct(self.top, None, &FieldPath::TOP, out),
            b'n' => {
                self.json.scan.scan_literal("null")?;
                let mut map = Map::new();
                fill_zero_fields(self.top, &mut map, &mut self.json.budget)?;
                *out = Value::Object(map);
                Ok(())
            }
            first => Err(error::not_an_object(json_type_name(first), self.top).into()),
        }
    }

    /// Reads a struct with its zero values; `before` is the previous value of a duplicate field.
    fn read_struct(
        &mut self,
        ty: &'static StructType,
        before: Option<Value>,
        path: &FieldPath,
        out: &mut Value,
    ) -> Result<(), DecodeHalt> {
        self.json.check_depth(path)?;
        let mut members = StructEntries::with_previous(ty, before);
        let mut seen = 0u128;
        let mut more = self.json.scan.enter_collection(b'}')?;
        while more {
            let key = self.json.read_key()?;
            match ty.field_position(&key) {
                Some(at) => {
                    let field = &ty.fields[at];
                    let place = FieldContext { owner: ty, field, ty: &field.ty, path: &path.field(field.name) };
                    self.read_field(place, at, seen >> at & 1 == 1, &mut members)?;
                    seen |= 1 << at;
                }
                None => self.read_undeclared_key(ty, &key, &mut members, path)?,
            }
            more = self.json.scan.advance_entry(b'}')?;
        }
        for at in ty.zero_fields.iter().filter(|at| members.kept >> **at & 1 == 0) {
            let field = &ty.fields[*at];
            self.json.budget.charge_map_entry(members.entries.len(), field.name.len())?;
            members.entries.push((field.name.to_owned(), unset_value(field, &mut self.json.budget)?));
        }
        *out = Value::Object(members.entries.into_iter().collect());
        Ok(())
    }

    /// Reads the value of a field and keeps it if JSON has it.
    fn read_field(
        &mut self,
        place: FieldContext,
        at: usize,
        twice: bool,
        members: &mut StructEntries,
    ) -> Result<(), DecodeHalt> {
        let name = place.field.name;
        let mut before = None;
        if twice {
            self.json.record_violation(StrictViolation::Duplicate(place.path.to_string()));
            before = members.take_entry(name);
            members.kept &= !(1 << at);
        }
        let first = self.json.scan.peek()?;
        let mut value = Value::Null;
        if first == b'n' {
            self.json.scan.scan_literal("null")?;
            // Go leaves the value unless it is a pointer, list or map.
            let clears = place.field.presence == FieldPresence::Pointer
                || matches!(place.ty, FieldType::List(_) | FieldType::Map(_));
            value = before.filter(|_| !clears).unwrap_or_default();
        } else {
            self.read_value(place, first, before, &mut value)?;
        }
        if !value.is_null() && is_written(place.field, &value) {
            self.json.budget.charge_map_entry(members.entries.len(), name.len())?;
            members.entries.push((name.to_owned(), value));
            members.kept |= 1 << at;
        }
        Ok(())
    }

    /// Reads a key that is not declared: `apiVersion`, `kind`, or an unknown field.
    fn read_undeclared_key(
        &mut self,
        ty: &'static StructType,
        key: &str,
        members: &mut StructEntries,
        path: &FieldPath,
    ) -> Result<(), DecodeHalt> {
        let top = path.depth == 0;
        if !(matches!(key, "apiVersion" | "kind") && (ty.is_kind || top)) {
            self.json.record_violation(StrictViolation::Unknown(path.field(key).to_string()));
            return Ok(self.json.scan.skip_value()?);
        }
        if members.entries.iter().any(|(known, _)| known == key) {
            self.json.record_violation(StrictViolation::Duplicate(path.field(key).to_string()));
        }
        match self.json.scan.peek()? {
            b'"' => {
                let text = self.json.read_string()?;
                if top || !text.is_empty() {
                    members.take_entry(key);
                    self.json.budget.charge_map_entry(members.entries.len(), key.len())?;
                    members.entries.push((key.to_owned(), text.into()));
                }
                Ok(())
            }
            b'n' => Ok(self.json.scan.scan_literal("null")?),
            first => {
                let wrong = DecodeError::TypeMismatch {
                    found: json_type_name(first).to_owned(),
                    owner: ty.short_name().to_owned(),
                    path: path.field(key).field_names(),
                    wanted: "string".to_owned(),
                };
                self.record_and_skip(wrong)
            }
        }
    }

    /// Reads a value other than null that starts with `first`; `before` is the previous value of a duplicate field.
    fn read_value(
        &mut self,
        place: FieldContext,
        first: u8,
        before: Option<Value>,
        out: &mut Value,
    ) -> Result<(), DecodeHalt> {
        match (place.ty, first) {
            (FieldType::String | FieldType::IntOrString, b'"') => *out = Value::String(self.json.read_string()?),
            (FieldType::Struct(id), b'{') => return self.read_struct(schema().get(*id), before, place.path, out),
            (FieldType::List(inner), b'[') => return self.read_list(FieldContext { ty: inner, ..place }, out),
            (FieldType::Map(inner), b'{') => return self.read_map(FieldContext { ty: inner, ..place }, before, out),
            (FieldType::Int32 | FieldType::Int64 | FieldType::IntOrString, b'-' | b'0'..=b'9') => {
                return self.read_integer(place, out);
            }
            (FieldType::Double, b'-' | b'0'..=b'9') => *out = parse_number(self.json.read_number()?)?,
            (FieldType::Bool, b't' | b'f') => {
                self.json.scan.scan_literal(if first == b't' { "true" } else { "false" })?;
                *out = Value::Bool(first == b't');
            }
            (FieldType::Raw, _) => return self.read_raw(place, out),
            (
                FieldType::Bytes
                | FieldType::Time
                | FieldType::MicroTime
                | FieldType::Duration
                | FieldType::Quantity
                | FieldType::IntOrString,
                _,
            ) => {
                return self.read_special_scalar(place, first, out);
            }
            _ => return self.record_and_skip(error::type_mismatch(self.top, place, json_type_name(first).to_owned())),
        }
        Ok(())
    }

    fn read_list(&mut self, place: FieldContext, out: &mut Value) -> Result<(), DecodeHalt> {
        self.json.check_depth(place.path)?;
        let mut items = Vec::new();
        let mut more = self.json.scan.enter_collection(b']')?;
        while more {
            self.json.budget.charge_list_element()?;
            let path = &place.path.index(items.len());
            let mut value = Value::Null;
            self.read_element(FieldContext { path, ..place }, &mut value)?;
            items.push(value);
            more = self.json.scan.advance_entry(b']')?;
        }
        *out = Value::Array(items);
        Ok(())
    }

    fn read_map(&mut self, place: FieldContext, before: Option<Value>, out: &mut Value) -> Result<(), DecodeHalt> {
        self.json.check_depth(place.path)?;
        let mut map = into_map(before);
        let mut more = self.json.scan.enter_collection(b'}')?;
        while more {
            let key = self.json.read_key()?;
            let path = &place.path.key(&key);
            if map.contains_key(&*key) {
                self.json.record_violation(StrictViolation::Duplicate(path.to_string()));
            }
            let mut value = Value::Null;
            self.read_element(FieldContext { path, ..place }, &mut value)?;
            self.json.budget.charge_map_entry(map.len(), key.len())?;
            map.insert(key.into_owned(), value);
            more = self.json.scan.advance_entry(b'}')?;
        }
        *out = Value::Object(map);
        Ok(())
    }

    fn read_element(&mut self, place: FieldContext, out: &mut Value) -> Result<(), DecodeHalt> {
        let first = self.json.scan.peek()?;
        if first == b'n' {
            self.json.scan.scan_literal("null")?;
            *out = zero_value(place.ty, &mut self.json.budget)?;
            return Ok(());
        }
        self.read_value(place, first, None, out)
    }

    fn read_integer(&mut self, place: FieldContext, out: &mut Value) -> Result<(), DecodeHalt> {
        let text = self.json.read_number()?;
        let fits = |number: &i64| *place.ty == FieldType::Int64 || i32::try_from(*number).is_ok();
        if let Some(number) = text.parse().ok().filter(fits) {
            *out = Value::from(number);
            return Ok(());
        }
        let wrong = error::type_mismatch(self.top, place, format!("number {text}"));
        if *place.ty == FieldType::IntOrString {
            return Err(wrong.into());
        }
        self.mismatch.get_or_insert(wrong);
        Ok(())
    }

    /// Reads a scalar with its own text format. As in Go, only malformed base64 lets decoding continue.
    fn read_special_scalar(&mut self, place: FieldContext, first: u8, out: &mut Value) -> Result<(), DecodeHalt> {
        match (place.ty, first) {
            (FieldType::Quantity, b'-' | b'0'..=b'9') => *out = Value::String(self.json.read_number()?.to_owned()),
            _ => self.json.read_value(place.path, false, out)?,
        }
        let wrong = match scalar::canonicalize_scalar(place.ty, out) {
            Ok(()) => return Ok(()),
            Err(Some(message)) => DecodeError::InvalidValue { path: place.path.to_string(), message },
            Err(None) => error::type_mismatch(self.top, place, error::describe_value(place.ty, out)),
        };
        if *place.ty != FieldType::Bytes {
            return Err(wrong.into());
        }
        self.mismatch.get_or_insert(wrong);
        Ok(())
    }

    /// Reads arbitrary JSON, or a JSON schema or its alternative.
    fn read_raw(&mut self, place: FieldContext, out: &mut Value) -> Result<(), DecodeHalt> {
        self.json.read_value(place.path, false, out)?;
        if let Some(shapes) = place.field.schema_shape {
            let mut walk = Canonicalizer { top: self.top, unknown: Vec::new(), budget: self.json.budget.clone() };
            walk.canonicalize_schema_shape(place, shapes, out)?;
            self.json.budget = walk.budget;
        }
        Ok(())
    }

    /// Records the error about the value at hand and skips it.
    fn record_and_skip(&mut self, wrong: DecodeError) -> Result<(), DecodeHalt> {
        self.mismatch.get_or_insert(wrong);
        Ok(self.json.scan.skip_value()?)
    }
}

/// The entries of a struct read so far, sorted once at the end.
struct StructEntries {
    entries: Vec<(String, Value)>,
    /// A bit per field among the entries.
    kept: u128,
}

impl StructEntries {
    /// Starts empty, or with the previous value of a duplicate field.
    fn with_previous(ty: &StructType, before: Option<Value>) -> Self {
        let mut entries = Vec::with_capacity(ty.fields.len().min(12));
        entries.extend(into_map(before));
        let kept = entries.iter().filter_map(|(name, _)| ty.field_position(name)).fold(0, |kept, at| kept | 1 << at);
        Self { entries, kept }
    }

    fn take_entry(&mut self, name: &str) -> Option<Value> {
        let at = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.swap_remove(at).1)
    }
}

fn into_map(before: Option<Value>) -> Map {
    match before {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
