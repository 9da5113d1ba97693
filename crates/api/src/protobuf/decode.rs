//! Decodes protobuf messages into canonical objects: unknown fields are skipped, zero values are written as in JSON,
//! repeated fields are merged or replaced as protobuf specifies.

use base64::{Engine, prelude::BASE64_STANDARD};
use formats::wire::{self, WireReader, WireValue};
use jiff::Timestamp;

use super::{MAGIC, MAX_DEPTH, ProtobufError, decode_enveloped, encode::ZERO_TIME_SECONDS};
use crate::{
    Map, Value,
    budget::MemoryBudget,
    decode::{fill_zero_fields, is_written, zero_value},
    duration, json,
    quantity::{self, Quantity},
    schema::{FieldType, SchemaShape, SlotContent, StructField, StructType, schema},
    time,
};

/// Decodes the messages of one object.
pub struct MessageDecoder<'b> {
    budget: &'b mut MemoryBudget,
    /// The nesting depth of the message being decoded.
    depth: usize,
}

type Decoded<T> = Result<T, ProtobufError>;

impl<'b> MessageDecoder<'b> {
    pub fn new(budget: &'b mut MemoryBudget, depth: usize) -> Self {
        Self { budget, depth }
    }

    /// Decodes a struct with its zero values.
    pub fn decode_struct(&mut self, ty: &StructType, bytes: &[u8]) -> Decoded<Map> {
        let mut map = Map::new();
        self.decode_fields(ty, bytes, &mut map)?;
        fill_zero_fields(ty, &mut map, self.budget)?;
        Ok(map)
    }

    /// Decodes the fields that a message sets.
    fn decode_fields(&mut self, ty: &StructType, bytes: &[u8], map: &mut Map) -> Decoded<()> {
        if self.depth > MAX_DEPTH {
            return Err(ProtobufError::Depth);
        }
        self.depth += 1;
        let mut fields = WireReader::new(bytes);
        let mut at = 0;
        while let Some((number, value)) = fields.next_field().map_err(|error| error.with_type(ty.short_name()))? {
            // Encoders keep number order: it is usually the same slot or the next one.
            let is_at = |at: usize| ty.slots.get(at).is_some_and(|slot| slot.number == number);
            at = match (is_at(at), is_at(at + 1)) {
                (true, _) => at,
                (_, true) => at + 1,
                _ => match ty.slots.binary_search_by_key(&number, |slot| slot.number) {
                    Ok(at) => at,
                    Err(_) => match value {
                        WireValue::Illegal(kind) => return Err(wire::WireError::NoWireType(kind).into()),
                        _ => continue,
                    },
                },
            };
            match ty.slots[at].content {
                SlotContent::Nested(id) => {
                    let inner = schema().get(id);
                    let WireValue::Bytes(bytes) = value else {
                        return Err(ProtobufError::WireType {
                            wire: value.wire_type(),
                            field: inner.short_name().to_owned(),
                        });
                    };
                    self.decode_fields(inner, bytes, map)?;
                }
                SlotContent::Field(at) => self.decode_field(&ty.fields[at], value, map)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn decode_field(&mut self, field: &StructField, value: WireValue, map: &mut Map) -> Decoded<()> {
        match &field.ty {
            FieldType::List(inner) => {
                let Value::Array(items) = self.field_entry(field, map, || Value::Array(Vec::new()))? else {
                    return Ok(());
                };
                if field.protobuf_wrapped {
                    return self.decode_wrapped_list(field, inner, value, items);
                }
                self.decode_item(field, inner, value, items)?;
                // Packed elements may be none at all.
                if items.is_empty() {
                    map.remove(field.name);
                }
                Ok(())
            }
            FieldType::Map(inner) => {
                let Value::Object(entries) = self.field_entry(field, map, || Value::Object(Map::new()))? else {
                    return Ok(());
                };
                self.decode_map_entry(field, inner, value, entries)
            }
            FieldType::Struct(id) => {
                let Value::Object(inner) = self.field_entry(field, map, || Value::Object(Map::new()))? else {
                    return Ok(());
                };
                let ty = schema().get(*id);
                self.decode_fields(ty, expect_bytes(field, value)?, inner)?;
                Ok(fill_zero_fields(ty, inner, self.budget)?)
            }
            ty => {
                let value = self.decode_element(field, ty, value)?;
                let unset = value.is_null() && (field.protobuf_optional || !matches!(field.ty, FieldType::Raw));
                if unset || !is_written(field, &value) {
                    // Overrides an earlier value in the message.
                    map.remove(field.name);
                    return Ok(());
                }
                let before = map.len();
                if map.insert(field.name.to_owned(), value).is_none() {
                    self.budget.charge_map_entry(before, field.name.len())?;
                }
                Ok(())
            }
        }
    }

    /// Returns the entry of a field in its struct, inserting it if absent.
    fn field_entry<'m>(&mut self, field: &StructField, map: &'m mut Map, new: fn() -> Value) -> Decoded<&'m mut Value> {
        if !map.contains_key(field.name) {
            self.budget.charge_map_entry(map.len(), field.name.len())?;
            map.insert(field.name.to_owned(), new());
        }
        map.get_mut(field.name).ok_or(wire::WireError::End.into())
    }

    /// Decodes one list element, or several packed ones.
    fn decode_item(
        &mut self,
        field: &StructField,
        inner: &FieldType,
        value: WireValue,
        items: &mut Vec<Value>,
    ) -> Decoded<()> {
        use FieldType::{Bool, Double, Int32, Int64};
        let mut packed = match (inner, value) {
            (Int32 | Int64 | Bool | Double, WireValue::Bytes(bytes)) => WireReader::new(bytes),
            _ => {
                self.budget.charge_list_element()?;
                items.push(self.decode_element(field, inner, value)?);
                return Ok(());
            }
        };
        while !packed.is_at_end() {
            let value = match inner {
                FieldType::Double => WireValue::Fixed64(packed.read_fixed64()?),
                _ => WireValue::Varint(packed.read_varint()?),
            };
            self.budget.charge_list_element()?;
            items.push(self.decode_element(field, inner, value)?);
        }
        Ok(())
    }

    /// Decodes a message with the list elements as field 1.
    fn decode_wrapped_list(
        &mut self,
        field: &StructField,
        inner: &FieldType,
        value: WireValue,
        items: &mut Vec<Value>,
    ) -> Decoded<()> {
        let mut fields = WireReader::new(expect_bytes(field, value)?);
        while let Some((number, value)) = fields.next_field()? {
            if number == 1 {
                self.decode_item(field, inner, value, items)?;
            }
        }
        Ok(())
    }

    fn decode_map_entry(
        &mut self,
        field: &StructField,
        inner: &FieldType,
        value: WireValue,
        entries: &mut Map,
    ) -> Decoded<()> {
        let mut fields = WireReader::new(expect_bytes(field, value)?);
        let (mut key, mut found) = (String::new(), None);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => key = decode_text(expect_bytes(field, value)?),
                2 => found = Some(self.decode_element(field, inner, value)?),
                _ => {}
            }
        }
        if !entries.contains_key(&key) {
            self.budget.charge_map_entry(entries.len(), key.len())?;
        }
        let value = match found {
            Some(value) => value,
            None if matches!(inner, FieldType::List(_)) => Value::Array(Vec::new()),
            None => zero_value(inner, self.budget)?,
        };
        entries.insert(key, value);
        Ok(())
    }

    fn decode_element(&mut self, field: &StructField, ty: &FieldType, value: WireValue) -> Decoded<Value> {
        Ok(match (ty, value) {
            (FieldType::String, WireValue::Bytes(bytes)) => {
                self.budget.charge_string(bytes.len())?;
                Value::String(decode_text(bytes))
            }
            (FieldType::Bool, WireValue::Varint(value)) => Value::Bool(value != 0),
            (FieldType::Int32, WireValue::Varint(value)) => (value as i32).into(),
            (FieldType::Int64, WireValue::Varint(value)) => (value as i64).into(),
            (FieldType::Double, WireValue::Fixed64(bits)) => {
                let value = f64::from_bits(bits);
                json::from_float(value).ok_or_else(|| invalid_value(field, format!("unsupported value: {value}")))?
            }
            (FieldType::Bytes, WireValue::Bytes(bytes)) => {
                self.budget.charge_string(bytes.len() / 3 * 4 + 4)?;
                Value::String(BASE64_STANDARD.encode(bytes))
            }
            (FieldType::Time, WireValue::Bytes(bytes)) => decode_time(field, bytes, false)?,
            (FieldType::MicroTime, WireValue::Bytes(bytes)) => decode_time(field, bytes, true)?,
            (FieldType::Duration, WireValue::Bytes(bytes)) => duration::format(last_varint(bytes, 1)? as i64).into(),
            (FieldType::Quantity, WireValue::Bytes(bytes)) => decode_quantity(field, bytes)?,
            (FieldType::IntOrString, WireValue::Bytes(bytes)) => self.decode_int_or_string(field, bytes)?,
            (FieldType::Raw, WireValue::Bytes(bytes)) => match field.schema_shape {
                Some(shapes) => self.decode_schema_shape(field, shapes, bytes)?,
                None => self.decode_raw(bytes)?,
            },
            (FieldType::Struct(id), WireValue::Bytes(bytes)) => {
                Value::Object(self.decode_struct(schema().get(*id), bytes)?)
            }
            (FieldType::List(inner), WireValue::Bytes(_)) => {
                let mut items = Vec::new();
                self.decode_wrapped_list(field, inner, value, &mut items)?;
                Value::Array(items)
            }
            _ => return Err(wrong_wire_type(field, value)),
        })
    }

    fn decode_int_or_string(&mut self, field: &StructField, bytes: &[u8]) -> Decoded<Value> {
        let (mut kind, mut number, mut string) = (0, 0, String::new());
        let mut fields = WireReader::new(bytes);
        while let Some(part) = fields.next_field()? {
            match part {
                (1, WireValue::Varint(value)) => kind = value,
                (2, WireValue::Varint(value)) => number = value as i32,
                (3, WireValue::Bytes(bytes)) => string = decode_text(bytes),
                (1..=3, value) => return Err(wrong_wire_type(field, value)),
                _ => {}
            }
        }
        self.budget.charge_string(string.len())?;
        match kind {
            0 => Ok(number.into()),
            1 => Ok(string.into()),
            _ => Err(invalid_value(field, "impossible IntOrString.Type".to_owned())),
        }
    }

    /// Decodes arbitrary JSON, or an object in an envelope.
    fn decode_raw(&mut self, bytes: &[u8]) -> Decoded<Value> {
        if self.depth > MAX_DEPTH {
            return Err(ProtobufError::Depth);
        }
        let mut raw: &[u8] = b"";
        let mut fields = WireReader::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            if let (1, WireValue::Bytes(bytes)) = (number, value) {
                raw = bytes;
            }
        }
        match raw {
            b"" => Ok(Value::Null),
            sealed if sealed.starts_with(MAGIC) => decode_enveloped(sealed, self.budget, self.depth),
            json => Ok(json::parse_within(json, self.budget)?),
        }
    }

    fn decode_schema_shape(&mut self, field: &StructField, shapes: SchemaShape, bytes: &[u8]) -> Decoded<Value> {
        let id = shapes.schema();
        self.depth += 1;
        let (one, many) = match shapes {
            SchemaShape::SchemaOrBool(_) => (2, 0),
            SchemaShape::SchemaOrArray(_) | SchemaShape::SchemaOrStrings(_) => (1, 2),
        };
        let inner =
            if matches!(shapes, SchemaShape::SchemaOrStrings(_)) { FieldType::String } else { FieldType::Struct(id) };
        let (mut allows, mut schema, mut items) = (false, None, Vec::new());
        let mut fields = WireReader::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            match (number, value) {
                (1, WireValue::Varint(value)) => allows = value != 0,
                (number, value) if number == one => {
                    schema = Some(self.decode_element(field, &FieldType::Struct(id), value)?)
                }
                (number, value) if number == many => self.decode_item(field, &inner, value, &mut items)?,
                _ => {}
            }
        }
        self.depth -= 1;
        Ok(match (shapes, schema) {
            (SchemaShape::SchemaOrBool(_), None) => Value::Bool(allows),
            (_, Some(schema)) if items.is_empty() => schema,
            _ if items.is_empty() => Value::Null,
            _ => Value::Array(items),
        })
    }
}

fn expect_bytes<'a>(field: &StructField, value: WireValue<'a>) -> Decoded<&'a [u8]> {
    match value {
        WireValue::Bytes(bytes) => Ok(bytes),
        _ => Err(wrong_wire_type(field, value)),
    }
}

/// The error of a wrong wire type; Go names the field by its struct.
fn wrong_wire_type(field: &StructField, value: WireValue) -> ProtobufError {
    let name = match (field.name, field.type_name.rsplit('.').next()) {
        ("metadata", Some(ty @ ("ObjectMeta" | "ListMeta"))) => ty.to_owned(),
        ("uid", _) => "UID".to_owned(),
        (name, _) => name[..1].to_ascii_uppercase() + &name[1..],
    };
    ProtobufError::WireType { wire: value.wire_type(), field: name }
}

/// Returns the last varint with a field number; 0 if absent.
fn last_varint(bytes: &[u8], wanted: u32) -> Decoded<u64> {
    let mut found = 0;
    let mut fields = WireReader::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        if let WireValue::Varint(value) = value
            && number == wanted
        {
            found = value;
        }
    }
    Ok(found)
}

/// Returns null for Go's zero time.
fn decode_time(field: &StructField, bytes: &[u8], micros: bool) -> Decoded<Value> {
    let (seconds, nanos) = (last_varint(bytes, 1)? as i64, last_varint(bytes, 2)? as i32);
    let nanos = if micros { nanos / 1000 * 1000 } else { 0 };
    if bytes.is_empty() || (seconds, nanos) == (ZERO_TIME_SECONDS, 0) {
        return Ok(Value::Null);
    }
    let time = Timestamp::from_second(seconds)
        .and_then(|time| time.checked_add(jiff::SignedDuration::from_nanos(nanos.into())));
    let time = time.map_err(|error| invalid_value(field, error.to_string()))?;
    Ok(if micros { time::format_micros(time) } else { time::format_seconds(time) }.into())
}

fn decode_quantity(field: &StructField, bytes: &[u8]) -> Decoded<Value> {
    let mut string = None;
    let mut fields = WireReader::new(bytes);
    while let Some((number, value)) = fields.next_field()? {
        if let (1, WireValue::Bytes(bytes)) = (number, value) {
            string = Some(decode_text(bytes));
        }
    }
    let Some(string) = string else { return Ok("0".into()) };
    if quantity::is_canonical(&string) {
        return Ok(string.into());
    }
    Quantity::canonicalize(&string).map(Value::from).map_err(|error| invalid_value(field, error.to_string()))
}

fn invalid_value(field: &StructField, message: String) -> ProtobufError {
    ProtobufError::Value { path: field.name, message }
}

/// Decodes text as Go writes it to JSON: invalid UTF-8 becomes U+FFFD.
fn decode_text(bytes: &[u8]) -> String {
    json::replace_invalid_utf8(bytes).into_owned()
}
