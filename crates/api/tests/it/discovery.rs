//! Compares discovery documents with upstream's fixtures and recorded responses.

use crate::shared;
use crate::shared::{differences, fixture, fixtures, report};
use ferry_api::{
    Value,
    discovery::{self, ALL_ENABLED, AggregatedVersion},
};

/// The unaggregated document at a path, with all group-versions enabled.
fn unaggregated_document(name: &str) -> Option<Value> {
    let parts: Vec<&str> = name.trim_end_matches(".json").split("__").collect();
    match parts.as_slice() {
        ["api"] => Some(discovery::core_versions("10.10.10.10:8050")),
        ["apis"] => Some(discovery::group_list(ALL_ENABLED)),
        ["api", version] => discovery::resource_list("", version),
        ["apis", group] => discovery::group_document(group, ALL_ENABLED),
        ["apis", group, version] => discovery::resource_list(group, version),
        _ => None,
    }
}

#[test]
fn documents_equal_upstreams_fixtures() {
    let Some(files) = fixtures("fixtures/discovery") else { return };
    let mut found = Vec::new();
    for name in &files {
        let want = fixture(&format!("fixtures/discovery/{name}"));
        let got = match name.as_str() {
            "aggregated_v2.json" => discovery::aggregated_document(false, AggregatedVersion::V2, ALL_ENABLED),
            name => unaggregated_document(name).unwrap_or_default(),
        };
        differences(name, &want, &got, &mut found);
    }
    report("discovery", files.len(), &found);
}

#[test]
fn responses_equal_recorded_ones() {
    let Some(exchanges) = shared::exchanges() else { return };
    let mut found = Vec::new();
    let mut compared = 0;
    for exchange in &exchanges {
        let id = exchange["id"].as_str().unwrap_or_default();
        let path = exchange["path"].as_str().unwrap_or_default();
        let enabled = &discovery::enabled_by_default;
        let got = match (id, path.trim_matches('/').split('/').collect::<Vec<_>>().as_slice()) {
            ("discovery aggregated /api" | "discovery aggregated /apis", [root]) => {
                Some(discovery::aggregated_document(*root == "api", AggregatedVersion::V2, enabled))
            }
            ("path /apis", _) => Some(discovery::group_list(enabled)),
            (_, ["api", version]) if id.starts_with("discovery ") => discovery::resource_list("", version),
            (_, ["apis", group, version]) if id.starts_with("discovery ") => discovery::resource_list(group, version),
            _ => continue,
        };
        compared += 1;
        differences(id, &exchange["response"], &got.unwrap_or_default(), &mut found);
    }
    assert!(compared > 10, "{compared} exchanges are about discovery");
    report("recorded discovery", compared, &found);
}
