//! From JSON text to the canonical object in one pass, by the tables: what is unknown is skipped, what is wrong is told as
//! upstream tells it, and nothing is kept that canonical form has not.

use super::{Error, Place, Walk, error, fill, scalar, shows, zero};
use crate::{
    Map, Value,
    budget::{Budget, Exceeded},
    json::{
        self, Violation, kind_of,
        reader::{Reader, Stop, number},
        scan::Fault,
    },
    path::Path,
    schema::{Presence, Ty, Type, TypeId, schema},
};

/// Why reading stopped: no JSON, or an error.
struct Halt(Option<Box<Error>>);

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt(Some(Box::new(error)))
    }
}

impl From<Exceeded> for Halt {
    fn from(error: Exceeded) -> Self {
        Error::from(error).into()
    }
}

impl From<Fault> for Halt {
    fn from(_: Fault) -> Self {
        Halt(None)
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Halt(Option::<json::Error>::from(stop).map(|error| Box::new(error.into())))
    }
}

impl From<Halt> for Option<Error> {
    fn from(halt: Halt) -> Self {
        halt.0.map(|error| *error)
    }
}

/// Reads JSON as an object of a type, and what strict decoding says about it.
pub(super) fn read(ty: TypeId, bytes: &[u8]) -> Result<(Value, Vec<Violation>), Error> {
    json::with_text(bytes, |text| -> Result<_, Halt> {
        let top = schema().get(ty);
        let mut typed = Typed { json: Reader::new(text, Budget::default()), top, mismatch: None };
        let mut map = Map::new();
        match typed.json.scan.peek()? {
            b'{' => typed.structure(top, &mut map, &Path::TOP)?,
            b'n' => {
                typed.json.scan.literal("null")?;
                fill(top, &mut map, &mut typed.json.budget)?;
            }
            first => return Err(error::whole(kind_of(first), top).into()),
        }
        typed.json.scan.end()?;
        match typed.mismatch {
            Some(error) => Err(error.into()),
            None => Ok((Value::Object(map), typed.json.violations)),
        }
    })
}

struct Typed<'t> {
    json: Reader<'t>,
    top: &'static Type,
    /// The first value of a wrong type. As in Go, reading goes on: a value that cannot be read at all is worse.
    mismatch: Option<Error>,
}

impl Typed<'_> {
    /// The fields of a struct, with its zeros.
    fn structure(&mut self, ty: &'static Type, out: &mut Map, path: &Path) -> Result<(), Halt> {
        self.json.nest(path)?;
        // A bit per field, as zeros are not in `out`.
        let mut seen = 0u128;
        let mut more = self.json.scan.enter(b'}')?;
        while more {
            let key = self.json.key()?;
            match ty.position(&key) {
                Some(at) => {
                    let field = &ty.fields[at];
                    let path = &path.field(field.name);
                    let twice = seen >> at & 1 == 1;
                    seen |= 1 << at;
                    self.member(Place { owner: ty, field, ty: &field.ty, path }, twice, out)?;
                }
                None => self.stranger(ty, &key, out, path)?,
            }
            more = self.json.scan.more(b'}')?;
        }
        Ok(fill(ty, out, &mut self.json.budget)?)
    }

    /// The value of a field, which is kept if JSON shows it.
    fn member(&mut self, place: Place, twice: bool, out: &mut Map) -> Result<(), Halt> {
        let name = place.field.name;
        let mut before = None;
        if twice {
            self.json.note(Violation::Duplicate(place.path.to_string()));
            before = out.remove(name);
        }
        let value = if self.null()? {
            // Go leaves what is no pointer as it is.
            let clears = place.field.presence == Presence::Pointer || matches!(place.ty, Ty::List(_) | Ty::Map(_));
            before.filter(|_| !clears)
        } else {
            Some(self.value(place, before)?)
        };
        if let Some(value) = value.filter(|value| shows(place.field, value)) {
            self.json.budget.entry(out.len(), name.len())?;
            out.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// A key that is no field: what the object says it is, or something unknown.
    fn stranger(&mut self, ty: &'static Type, key: &str, out: &mut Map, path: &Path) -> Result<(), Halt> {
        let top = path.depth == 0;
        if !(matches!(key, "apiVersion" | "kind") && (ty.kind || top)) {
            self.json.note(Violation::Unknown(path.field(key).to_string()));
            return Ok(self.json.scan.skip()?);
        }
        if out.contains_key(key) {
            self.json.note(Violation::Duplicate(path.field(key).to_string()));
        }
        match self.json.scan.peek()? {
            b'"' => {
                let text = self.json.string()?;
                if top || !text.is_empty() {
                    self.json.budget.entry(out.len(), key.len())?;
                    out.insert(key.to_owned(), text.into());
                }
                Ok(())
            }
            b'n' => Ok(self.json.scan.literal("null")?),
            first => {
                let wrong = Error::Type {
                    found: kind_of(first).to_owned(),
                    owner: ty.short_name().to_owned(),
                    path: path.field(key).fields(),
                    wanted: "string".to_owned(),
                };
                self.save(wrong)
            }
        }
    }

    /// A value that is not null; `before` is what a field had that is there twice.
    fn value(&mut self, place: Place, before: Option<Value>) -> Result<Value, Halt> {
        let first = self.json.scan.peek()?;
        match (place.ty, first) {
            (Ty::String | Ty::IntOrString, b'"') => Ok(Value::String(self.json.string()?)),
            (Ty::Struct(id), b'{') => {
                let mut map = object(before);
                self.structure(schema().get(*id), &mut map, place.path)?;
                Ok(Value::Object(map))
            }
            (Ty::List(inner), b'[') => self.list(Place { ty: inner, ..place }),
            (Ty::Map(inner), b'{') => self.map(Place { ty: inner, ..place }, object(before)),
            (Ty::Int32 | Ty::Int64 | Ty::IntOrString, b'-' | b'0'..=b'9') => self.integer(place),
            (Ty::Double, b'-' | b'0'..=b'9') => Ok(number(self.json.number()?)?),
            (Ty::Bool, b't') => self.word("true", true),
            (Ty::Bool, b'f') => self.word("false", false),
            (Ty::Raw, _) => self.raw(place),
            (Ty::Bytes | Ty::Time | Ty::MicroTime | Ty::Duration | Ty::Quantity | Ty::IntOrString, _) => {
                self.special(place, first)
            }
            _ => {
                self.save(error::mismatch(self.top, place, kind_of(first).to_owned()))?;
                Ok(Value::Null)
            }
        }
    }

    fn list(&mut self, place: Place) -> Result<Value, Halt> {
        self.json.nest(place.path)?;
        let mut out = Vec::new();
        let mut more = self.json.scan.enter(b']')?;
        while more {
            self.json.budget.element()?;
            let path = &place.path.index(out.len());
            out.push(self.element(Place { path, ..place })?);
            more = self.json.scan.more(b']')?;
        }
        Ok(Value::Array(out))
    }

    fn map(&mut self, place: Place, mut out: Map) -> Result<Value, Halt> {
        self.json.nest(place.path)?;
        let mut more = self.json.scan.enter(b'}')?;
        while more {
            let key = self.json.key()?;
            let path = &place.path.key(&key);
            if out.contains_key(&*key) {
                self.json.note(Violation::Duplicate(path.to_string()));
            }
            let value = self.element(Place { path, ..place })?;
            self.json.budget.entry(out.len(), key.len())?;
            out.insert(key.into_owned(), value);
            more = self.json.scan.more(b'}')?;
        }
        Ok(Value::Object(out))
    }

    fn element(&mut self, place: Place) -> Result<Value, Halt> {
        if self.null()? {
            return Ok(zero(place.ty, &mut self.json.budget)?);
        }
        self.value(place, None)
    }

    fn integer(&mut self, place: Place) -> Result<Value, Halt> {
        let text = self.json.number()?;
        let fits = |number: &i64| *place.ty == Ty::Int64 || i32::try_from(*number).is_ok();
        if let Some(number) = text.parse().ok().filter(fits) {
            return Ok(Value::from(number));
        }
        let wrong = error::mismatch(self.top, place, format!("number {text}"));
        if *place.ty == Ty::IntOrString {
            return Err(wrong.into());
        }
        self.mismatch.get_or_insert(wrong);
        Ok(Value::Null)
    }

    /// A scalar with a form of its own. Only bytes that cannot be read let Go go on.
    fn special(&mut self, place: Place, first: u8) -> Result<Value, Halt> {
        let mut value = match (place.ty, first) {
            (Ty::Quantity, b'-' | b'0'..=b'9') => Value::String(self.json.number()?.to_owned()),
            _ => self.json.any(place.path, false)?,
        };
        let wrong = match scalar::canonical(place.ty, &mut value) {
            Ok(()) => return Ok(value),
            Err(Some(message)) => Error::Value { path: place.path.to_string(), message },
            Err(None) => error::mismatch(self.top, place, error::found(place.ty, &value)),
        };
        if *place.ty != Ty::Bytes {
            return Err(wrong.into());
        }
        self.mismatch.get_or_insert(wrong);
        Ok(Value::Null)
    }

    /// Any JSON, or a schema or what may stand instead of one.
    fn raw(&mut self, place: Place) -> Result<Value, Halt> {
        let mut value = self.json.any(place.path, false)?;
        if let Some(shapes) = place.field.shapes {
            let mut walk = Walk { top: self.top, unknown: Vec::new(), budget: self.json.budget.clone() };
            walk.shape(place, shapes, &mut value)?;
            self.json.budget = walk.budget;
        }
        Ok(value)
    }

    fn word(&mut self, word: &'static str, value: bool) -> Result<Value, Halt> {
        self.json.scan.literal(word)?;
        Ok(Value::Bool(value))
    }

    /// Whether null is here, which is then read.
    fn null(&mut self) -> Result<bool, Halt> {
        let null = self.json.scan.peek()? == b'n';
        if null {
            self.json.scan.literal("null")?;
        }
        Ok(null)
    }

    /// Remembers what is wrong with the value that is here, and skips it.
    fn save(&mut self, wrong: Error) -> Result<(), Halt> {
        self.mismatch.get_or_insert(wrong);
        Ok(self.json.scan.skip()?)
    }
}

fn object(before: Option<Value>) -> Map {
    match before {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
