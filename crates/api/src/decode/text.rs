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
        let json = Reader::new(text, Budget::default());
        let mut typed = Typed { json, top: schema().get(ty), mismatch: None };
        let mut object = Value::Null;
        typed.top(&mut object)?;
        typed.json.scan.end()?;
        match typed.mismatch {
            Some(error) => Err(error.into()),
            None => Ok((object, typed.json.violations)),
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
    fn top(&mut self, out: &mut Value) -> Result<(), Halt> {
        match self.json.scan.peek()? {
            b'{' => self.structure(self.top, None, &Path::TOP, out),
            b'n' => {
                self.json.scan.literal("null")?;
                let mut map = Map::new();
                fill(self.top, &mut map, &mut self.json.budget)?;
                *out = Value::Object(map);
                Ok(())
            }
            first => Err(error::whole(kind_of(first), self.top).into()),
        }
    }

    /// A struct, with its zeros; `before` is what it was where it is there twice.
    fn structure(
        &mut self,
        ty: &'static Type,
        before: Option<Value>,
        path: &Path,
        out: &mut Value,
    ) -> Result<(), Halt> {
        self.json.nest(path)?;
        let mut members = Members::of(ty, before);
        let mut seen = 0u128;
        let mut more = self.json.scan.enter(b'}')?;
        while more {
            let key = self.json.key()?;
            match ty.position(&key) {
                Some(at) => {
                    let field = &ty.fields[at];
                    let place = Place { owner: ty, field, ty: &field.ty, path: &path.field(field.name) };
                    self.member(place, at, seen >> at & 1 == 1, &mut members)?;
                    seen |= 1 << at;
                }
                None => self.stranger(ty, &key, &mut members, path)?,
            }
            more = self.json.scan.more(b'}')?;
        }
        for at in ty.zeros.iter().filter(|at| members.kept >> **at & 1 == 0) {
            let field = &ty.fields[*at];
            self.json.budget.entry(members.entries.len(), field.name.len())?;
            members.entries.push((field.name.to_owned(), zero(&field.ty, &mut self.json.budget)?));
        }
        *out = Value::Object(members.entries.into_iter().collect());
        Ok(())
    }

    /// The value of a field, which is kept if JSON shows it.
    fn member(&mut self, place: Place, at: usize, twice: bool, members: &mut Members) -> Result<(), Halt> {
        let name = place.field.name;
        let mut before = None;
        if twice {
            self.json.note(Violation::Duplicate(place.path.to_string()));
            before = members.take(name);
            members.kept &= !(1 << at);
        }
        let first = self.json.scan.peek()?;
        let mut value = Value::Null;
        if first == b'n' {
            self.json.scan.literal("null")?;
            // Go leaves what is no pointer as it is.
            let clears = place.field.presence == Presence::Pointer || matches!(place.ty, Ty::List(_) | Ty::Map(_));
            value = before.filter(|_| !clears).unwrap_or_default();
        } else {
            self.value(place, first, before, &mut value)?;
        }
        if !value.is_null() && shows(place.field, &value) {
            self.json.budget.entry(members.entries.len(), name.len())?;
            members.entries.push((name.to_owned(), value));
            members.kept |= 1 << at;
        }
        Ok(())
    }

    /// A key that is no field: what the object says it is, or something unknown.
    fn stranger(&mut self, ty: &'static Type, key: &str, members: &mut Members, path: &Path) -> Result<(), Halt> {
        let top = path.depth == 0;
        if !(matches!(key, "apiVersion" | "kind") && (ty.kind || top)) {
            self.json.note(Violation::Unknown(path.field(key).to_string()));
            return Ok(self.json.scan.skip()?);
        }
        if members.entries.iter().any(|(known, _)| known == key) {
            self.json.note(Violation::Duplicate(path.field(key).to_string()));
        }
        match self.json.scan.peek()? {
            b'"' => {
                let text = self.json.string()?;
                if top || !text.is_empty() {
                    members.take(key);
                    self.json.budget.entry(members.entries.len(), key.len())?;
                    members.entries.push((key.to_owned(), text.into()));
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

    /// A value that is not null, and what it begins with; `before` is what a field had that is there twice.
    fn value(&mut self, place: Place, first: u8, before: Option<Value>, out: &mut Value) -> Result<(), Halt> {
        match (place.ty, first) {
            (Ty::String | Ty::IntOrString, b'"') => *out = Value::String(self.json.string()?),
            (Ty::Struct(id), b'{') => return self.structure(schema().get(*id), before, place.path, out),
            (Ty::List(inner), b'[') => return self.list(Place { ty: inner, ..place }, out),
            (Ty::Map(inner), b'{') => return self.map(Place { ty: inner, ..place }, before, out),
            (Ty::Int32 | Ty::Int64 | Ty::IntOrString, b'-' | b'0'..=b'9') => return self.integer(place, out),
            (Ty::Double, b'-' | b'0'..=b'9') => *out = number(self.json.number()?)?,
            (Ty::Bool, b't' | b'f') => {
                self.json.scan.literal(if first == b't' { "true" } else { "false" })?;
                *out = Value::Bool(first == b't');
            }
            (Ty::Raw, _) => return self.raw(place, out),
            (Ty::Bytes | Ty::Time | Ty::MicroTime | Ty::Duration | Ty::Quantity | Ty::IntOrString, _) => {
                return self.special(place, first, out);
            }
            _ => return self.save(error::mismatch(self.top, place, kind_of(first).to_owned())),
        }
        Ok(())
    }

    fn list(&mut self, place: Place, out: &mut Value) -> Result<(), Halt> {
        self.json.nest(place.path)?;
        let mut items = Vec::new();
        let mut more = self.json.scan.enter(b']')?;
        while more {
            self.json.budget.element()?;
            let path = &place.path.index(items.len());
            let mut value = Value::Null;
            self.element(Place { path, ..place }, &mut value)?;
            items.push(value);
            more = self.json.scan.more(b']')?;
        }
        *out = Value::Array(items);
        Ok(())
    }

    fn map(&mut self, place: Place, before: Option<Value>, out: &mut Value) -> Result<(), Halt> {
        self.json.nest(place.path)?;
        let mut map = object(before);
        let mut more = self.json.scan.enter(b'}')?;
        while more {
            let key = self.json.key()?;
            let path = &place.path.key(&key);
            if map.contains_key(&*key) {
                self.json.note(Violation::Duplicate(path.to_string()));
            }
            let mut value = Value::Null;
            self.element(Place { path, ..place }, &mut value)?;
            self.json.budget.entry(map.len(), key.len())?;
            map.insert(key.into_owned(), value);
            more = self.json.scan.more(b'}')?;
        }
        *out = Value::Object(map);
        Ok(())
    }

    fn element(&mut self, place: Place, out: &mut Value) -> Result<(), Halt> {
        let first = self.json.scan.peek()?;
        if first == b'n' {
            self.json.scan.literal("null")?;
            *out = zero(place.ty, &mut self.json.budget)?;
            return Ok(());
        }
        self.value(place, first, None, out)
    }

    fn integer(&mut self, place: Place, out: &mut Value) -> Result<(), Halt> {
        let text = self.json.number()?;
        let fits = |number: &i64| *place.ty == Ty::Int64 || i32::try_from(*number).is_ok();
        if let Some(number) = text.parse().ok().filter(fits) {
            *out = Value::from(number);
            return Ok(());
        }
        let wrong = error::mismatch(self.top, place, format!("number {text}"));
        if *place.ty == Ty::IntOrString {
            return Err(wrong.into());
        }
        self.mismatch.get_or_insert(wrong);
        Ok(())
    }

    /// A scalar with a form of its own. Only bytes that cannot be read let Go go on.
    fn special(&mut self, place: Place, first: u8, out: &mut Value) -> Result<(), Halt> {
        match (place.ty, first) {
            (Ty::Quantity, b'-' | b'0'..=b'9') => *out = Value::String(self.json.number()?.to_owned()),
            _ => self.json.any(place.path, false, out)?,
        }
        let wrong = match scalar::canonical(place.ty, out) {
            Ok(()) => return Ok(()),
            Err(Some(message)) => Error::Value { path: place.path.to_string(), message },
            Err(None) => error::mismatch(self.top, place, error::found(place.ty, out)),
        };
        if *place.ty != Ty::Bytes {
            return Err(wrong.into());
        }
        self.mismatch.get_or_insert(wrong);
        Ok(())
    }

    /// Any JSON, or a schema or what may stand instead of one.
    fn raw(&mut self, place: Place, out: &mut Value) -> Result<(), Halt> {
        self.json.any(place.path, false, out)?;
        if let Some(shapes) = place.field.shapes {
            let mut walk = Walk { top: self.top, unknown: Vec::new(), budget: self.json.budget.clone() };
            walk.shape(place, shapes, out)?;
            self.json.budget = walk.budget;
        }
        Ok(())
    }

    /// Remembers what is wrong with the value that is here, and skips it.
    fn save(&mut self, wrong: Error) -> Result<(), Halt> {
        self.mismatch.get_or_insert(wrong);
        Ok(self.json.scan.skip()?)
    }
}

/// What a struct has so far: sorted once at its end, which costs less than to keep it sorted.
struct Members {
    entries: Vec<(String, Value)>,
    /// A bit per field that is among the entries.
    kept: u128,
}

impl Members {
    /// Nothing, or what the struct was where it is there twice.
    fn of(ty: &Type, before: Option<Value>) -> Self {
        let mut entries = Vec::with_capacity(ty.fields.len().min(12));
        entries.extend(object(before));
        let kept = entries.iter().filter_map(|(name, _)| ty.position(name)).fold(0, |kept, at| kept | 1 << at);
        Self { entries, kept }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.swap_remove(at).1)
    }
}

fn object(before: Option<Value>) -> Map {
    match before {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}
