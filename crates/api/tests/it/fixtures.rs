//! Upstream's serialization fixtures in JSON, YAML and protobuf: all three decode to the same object, and encoding
//! yields upstream's bytes. Skipped with a message where the fixtures are absent.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ferry_api::{
    Value,
    decode::{self, FieldValidation},
    json, json_encoder, protobuf,
    schema::{FieldType, TypeId, schema},
    yaml,
};

/// One kind in its three encodings.
struct SerializationFixture {
    name: String,
    json: Vec<u8>,
    yaml: Vec<u8>,
    protobuf: Vec<u8>,
}

impl SerializationFixture {
    fn read(path: &Path) -> Self {
        let form = |extension| fs::read(path.with_extension(extension)).expect("a fixture has three forms");
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        SerializationFixture { name, json: form("json"), yaml: form("yaml"), protobuf: form("pb") }
    }

    /// Checks decoding and encoding.
    fn check_formats(&self) -> Result<(), String> {
        let (value, twice) = json::parse(&self.json).map_err(|error| error.to_string())?;
        let ty = self.declared_type(&value)?;
        let (object, warnings) =
            decode::decode_json(ty, &self.json, FieldValidation::Warn).map_err(|error| error.to_string())?;
        expect_equal("violations", &warnings, &twice)?;
        expect_equal("JSON → object", &object, &value)?;
        let (read, warnings) =
            yaml::decode_yaml(ty, &self.yaml, FieldValidation::Strict).map_err(|error| error.to_string())?;
        expect_equal("YAML → object", &read, &value)?;
        expect_equal("YAML violations", &warnings, &Vec::new())?;
        expect_equal_bytes("object → YAML", yaml::write_document(&value).as_bytes(), &self.yaml)?;
        let encoded = match value["kind"].is_null() {
            true => json_encoder::encode_typed(&FieldType::Struct(ty), &value),
            false => json_encoder::encode_object(&value),
        };
        expect_equal_bytes(
            "object → JSON",
            &encoded,
            json::compact_json(&String::from_utf8_lossy(&self.json)).as_bytes(),
        )?;
        self.check_protobuf(ty, &value)
    }

    fn check_protobuf(&self, ty: TypeId, value: &Value) -> Result<(), String> {
        let envelope = protobuf::open_object(&self.protobuf).map_err(|error| error.to_string())?;
        if value["kind"].is_null() {
            expect_equal_bytes("object → message", &protobuf::encode_as(ty, value), envelope.raw)?;
            let decoded = protobuf::decode_as(ty, envelope.raw).map_err(|error| error.to_string())?;
            return expect_equal("message → object", &decoded, value);
        }
        let encoded = protobuf::encode_declared(value).ok_or("the kind has no protobuf")?;
        let decoded = protobuf::decode_object(&self.protobuf).map_err(|error| error.to_string())?;
        expect_equal("protobuf → object", &decoded, value)?;
        expect_equal_bytes("object → protobuf", &encoded, &self.protobuf)
    }

    /// The type that the object or the file name declares.
    fn declared_type(&self, value: &Value) -> Result<TypeId, String> {
        let kind = self.name.rsplit('.').next().unwrap_or_default();
        let api_version = value["apiVersion"].as_str().unwrap_or("v1");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        schema().type_of_kind(group, version, kind).ok_or_else(|| format!("no type for {api_version} {kind}"))
    }
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what}:\n ours   {ours:?}\n theirs {theirs:?}")) }
}

/// Compares bytes and reports the first difference.
fn expect_equal_bytes(what: &str, ours: &[u8], theirs: &[u8]) -> Result<(), String> {
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    if at == ours.len() && at == theirs.len() {
        return Ok(());
    }
    let part = |bytes: &[u8]| bytes[at.saturating_sub(40)..(at + 40).min(bytes.len())].escape_ascii().to_string();
    Err(format!("{what}, from byte {at}:\n ours   {}\n theirs {}", part(ours), part(theirs)))
}

fn fixtures() -> Option<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/api");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    Some(paths)
}

#[test]
fn every_kind_round_trips_like_upstream() {
    let Some(paths) = fixtures() else {
        skip::skip_without_data("the serialization fixtures are not here");
        return;
    };
    let faults: Vec<String> = paths
        .iter()
        .map(|path| SerializationFixture::read(path))
        .filter_map(|fixture| Some(format!("{}: {}", fixture.name, fixture.check_formats().err()?)))
        .collect();
    assert!(faults.is_empty(), "{} of {} kinds differ:\n{}", faults.len(), paths.len(), faults.join("\n"));
    assert_eq!(paths.len(), 185);
    eprintln!("{} kinds are the same in JSON, YAML and protobuf", paths.len());
}
