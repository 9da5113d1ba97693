//! `kubectl explain` of every kind, in both versions of OpenAPI, says what the definition says.

use serde_json::Value;

use super::{kinds::ServedKind, world::DefinitionsTest};

/// Of which kinds everything is explained, and from OpenAPI 2 too: one of each module.
const WHOLE: &[&str] = &[
    "Certificate",
    "ServiceMonitor",
    "AppProject",
    "ScaledObject",
    "MachineDeployment",
    "VirtualService",
    "HTTPRoute",
];

/// Explains all kinds. Upstream publishes them later than it establishes them, and nothing of it is recorded.
pub fn check(world: &DefinitionsTest, kinds: &[ServedKind]) {
    if world.is_upstream() {
        return;
    }
    world.each(kinds, |kind| {
        let named = [("GROUP:      ", &kind.group), ("KIND:       ", &kind.kind), ("VERSION:    ", &kind.version)];
        top(kind, &named, "\n  ", &explained(world, kind, &[]));
        if WHOLE.contains(&kind.kind.as_str()) {
            whole(kind, &explained(world, kind, &["--recursive"]));
            let named = [("KIND:     ", &kind.kind), ("VERSION:  ", &kind.api_version())];
            top(kind, &named, "\n   ", &explained(world, kind, &["--output=plaintext-openapiv2"]));
        }
    });
}

fn explained(world: &DefinitionsTest, kind: &ServedKind, more: &[&str]) -> String {
    let version = format!("--api-version={}", kind.api_version());
    world.kubectl(&[&["explain", &kind.plural, &version], more].concat(), None).expect_success()
}

/// Its name, and its fields with their descriptions.
fn top(kind: &ServedKind, named: &[(&str, &String)], indent: &str, told: &str) {
    for (title, text) in named {
        assert!(told.contains(&format!("{title}{text}\n")), "{title}{text}: {told}");
    }
    has_description(&kind.schema, told);
    for (name, schema) in properties(&kind.schema) {
        assert!(told.contains(&format!("{indent}{name}\t<")), "{}: {name}: {told}", kind.resource());
        if name != "metadata" {
            has_description(schema, told);
        }
    }
}

/// Every field at every depth.
fn whole(kind: &ServedKind, told: &str) {
    check_below(&kind.schema, 1, told);
    assert!(told.lines().count() > 30, "{}: {told}", kind.resource());
}

fn check_below(schema: &Value, depth: usize, told: &str) {
    let inner = [&schema["items"], &schema["additionalProperties"]];
    inner.into_iter().filter(|inner| inner.is_object()).for_each(|inner| check_below(inner, depth, told));
    for (name, schema) in properties(schema).filter(|(name, _)| depth > 1 || *name != "metadata") {
        assert!(told.contains(&format!("\n{}{name}\t<", "  ".repeat(depth))), "{name} at {depth}: {told}");
        check_below(schema, depth + 1, told);
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    schema["properties"].as_object().into_iter().flatten().map(|(name, schema)| (name.as_str(), schema))
}

/// The beginning of a description; kubectl breaks its lines.
fn has_description(schema: &Value, told: &str) {
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let wanted: String = bare(schema["description"].as_str().unwrap_or_default()).chars().take(60).collect();
    assert!(bare(told).contains(&wanted), "{wanted}: {told}");
}
