//! Mutated client input: no decoder or patch panics, and none allocates more than 64 MiB for an input under 3 MiB.
//! `FERRY_FUZZ` sets the number of executions per target, `FERRY_FUZZ_TARGET` picks one.

#[path = "it/generate/mod.rs"]
mod generate;
mod mutate;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

use fastrand::Rng;
use ferry_api::{
    apply,
    decode::{self, FieldValidation},
    json,
    patch::PatchType,
    protobuf,
    request_body::{self, BodyFormat},
    schema::{TypeId, schema},
    selector::{FieldSelector, LabelSelector},
    yaml,
};
use mutate::Corpus;
use peak_alloc::PeakAlloc;

const EXECUTIONS: usize = 2_000;
const MAX_MEMORY: usize = 64 << 20;

/// Tracks current and peak allocation.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Tests measure the memory of the whole process, so they run one at a time.
static SERIAL: Mutex<()> = Mutex::new(());

/// A function under test.
type FuzzTarget = fn(&[u8], TypeId);

const TARGETS: [(&str, FuzzTarget); 9] = [
    ("json", read_json),
    ("yaml", read_yaml),
    ("protobuf", read_protobuf),
    ("json_patch", |bytes, ty| apply_patch(PatchType::Json, bytes, ty)),
    ("merge_patch", |bytes, ty| apply_patch(PatchType::Merge, bytes, ty)),
    ("strategic_patch", |bytes, ty| apply_patch(PatchType::Strategic, bytes, ty)),
    ("apply", apply_configuration),
    ("selectors", parse_selectors),
    ("body", read_body),
];

fn read_json(bytes: &[u8], ty: TypeId) {
    let _ = json::type_meta(bytes);
    let _ = json::parse(bytes);
    let _ = decode::decode_json(ty, bytes, FieldValidation::Strict);
    if let Ok((object, _)) = decode::decode_json(ty, bytes, FieldValidation::Ignore) {
        let again = decode::canonicalize(ty, object.clone()).expect("a canonical object is of its type").object;
        assert_eq!(again, object, "canonical form is stable");
    }
}

fn read_yaml(bytes: &[u8], ty: TypeId) {
    if let Ok(parsed) = yaml::parse(bytes) {
        let written = yaml::write_document(&parsed.value);
        // Line breaks of YAML 1.1 only are normalized.
        if written.len() < json::MAX_SIZE && !written.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
            assert_eq!(
                yaml::parse(written.as_bytes()).map(|parsed| parsed.value).as_ref(),
                Ok(&parsed.value),
                "{written}"
            );
        }
    }
    let _ = yaml::decode_yaml(ty, bytes, FieldValidation::Strict);
}

fn read_protobuf(bytes: &[u8], ty: TypeId) {
    let _ = protobuf::decode_object(bytes);
    let _ = protobuf::decode_watch_event(bytes);
    if let Ok(object) = protobuf::decode_as(ty, bytes) {
        let again = protobuf::decode_as(ty, &protobuf::encode_as(ty, &object)).ok();
        assert_eq!(again.as_ref(), Some(&object), "what was decoded can be encoded");
    }
}

fn apply_patch(kind: PatchType, bytes: &[u8], ty: TypeId) {
    let Ok(patch) = kind.decode_patch(bytes) else { return };
    let object = generate::random_object(&mut Rng::with_seed(bytes.len() as u64), ty);
    if let Ok(patched) = kind.apply_patch(ty, &object, &patch) {
        let _ = decode::canonicalize(ty, patched);
    }
}

/// Applies the bytes by one manager, then by another.
fn apply_configuration(bytes: &[u8], ty: TypeId) {
    let Some(resource) = schema().resources().iter().find(|resource| resource.ty == ty) else { return };
    let Ok((mut config, _)) = json::parse(bytes) else { return };
    if config.is_object() {
        config["apiVersion"] = resource.api_version().into();
        config["kind"] = resource.kind.into();
    }
    let writer = |manager| apply::ApplyRequest {
        target: apply::ApplyTarget::for_resource(resource, ""),
        manager,
        now: "2026-01-01T00:00:00Z",
    };
    let live = generate::random_object(&mut Rng::with_seed(bytes.len() as u64), ty);
    if let Ok(object) = apply::apply_config(&writer("a"), Some(&live), &config, true) {
        let _ = apply::apply_config(&writer("b"), Some(&object), &config, false);
    }
}

fn parse_selectors(bytes: &[u8], ty: TypeId) {
    let text = String::from_utf8_lossy(bytes);
    let Some(resource) = schema().resources().iter().find(|resource| resource.ty == ty) else { return };
    if let Ok(selector) = LabelSelector::parse(&text) {
        selector.matches(&serde_json::json!({"a": "b", "tier": "web"}));
    }
    if let Ok(selector) = FieldSelector::parse(&text, resource) {
        selector.matches(&serde_json::json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}}));
    }
}

fn read_body(bytes: &[u8], ty: TypeId) {
    let Some(resource) = schema().resources().iter().find(|resource| resource.ty == ty) else { return };
    for format in [BodyFormat::Json, BodyFormat::Yaml, BodyFormat::Protobuf] {
        let _ = request_body::decode_body(resource, format, bytes, FieldValidation::Warn);
    }
}

/// Runs a target and returns its peak memory; `None` if it panicked.
fn measure_memory(run: FuzzTarget, bytes: &[u8], ty: TypeId) -> Option<usize> {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(bytes, ty)));
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    outcome.ok().map(|()| taken)
}

#[test]
fn mutated_inputs_neither_panic_nor_exceed_memory() {
    let _one = SERIAL.lock();
    let executions = std::env::var("FERRY_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(EXECUTIONS);
    let wanted = std::env::var("FERRY_FUZZ_TARGET").ok();
    let types: Vec<TypeId> = schema().resources().iter().map(|resource| resource.ty).collect();
    for (name, target) in TARGETS.iter().filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name)) {
        let corpus = Corpus::of(name);
        let mut rng = Rng::with_seed(executions as u64);
        let mut most = 0;
        for execution in 0..executions {
            let (bytes, ty) = corpus.next(&mut rng, &types);
            let shown = || bytes[..bytes.len().min(4000)].escape_ascii().to_string();
            let Some(taken) = measure_memory(*target, &bytes, ty) else {
                panic!("{name} panicked in execution {execution} for {} on {}", schema().get(ty).name, shown());
            };
            assert!(taken < MAX_MEMORY, "{name} took {taken} bytes in execution {execution}: {}", shown());
            most = most.max(taken);
        }
        eprintln!("{name}: {executions} executions, at most {} KiB", most >> 10);
    }
}

/// The most expensive documents known for each decoder, at maximum size.
#[test]
fn worst_case_documents_are_bounded() {
    let _one = SERIAL.lock();
    let pod = schema().type_named("core/v1.Pod").expect("there are pods");
    for (at, (target, bytes)) in mutate::worst_documents().into_iter().enumerate() {
        let (_, run) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
        assert!(bytes.len() <= json::MAX_SIZE);
        let taken = measure_memory(*run, &bytes, pod);
        assert!(taken.is_some_and(|taken| taken < MAX_MEMORY), "document {at}, {target}: {taken:?} bytes");
    }
}
