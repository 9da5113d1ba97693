//! Validation of definitions of custom resources. Schemas have a file of their own.
//!
//! Upstream checks a definition in a form in which what all versions share stands once, above them; paths of faults are
//! those of that form.

use super::{
    Errors,
    at::At,
    custom_schema as schema,
    error::{Bad, Fault},
    names,
    render::{self, same},
    webhook,
};
use crate::Value;

const APPROVED: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// The name is made of plural and group.
pub(super) fn name(new: &At, e: &mut Errors) {
    let (meta, spec) = (new.get("metadata"), new.get("spec"));
    let name = meta.get("name");
    if name.is_empty() {
        return;
    }
    let wanted = format!("{}.{}", spec.get("names").get("plural").text(), spec.get("group").text());
    name.form(e, names::subdomain);
    if name.text() != wanted {
        name.invalid_text(e, "must be spec.names.plural+\".\"+spec.group");
    }
}

/// The faults of a definition.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    self::spec(&spec, e);
    if let Some(old) = old {
        changed(&spec, old, e);
    }
    let status = new.get("status");
    kind_names(&status.get("acceptedNames"), e);
    stored_versions(&status.get("storedVersions"), &spec, e);
    approval(new, old, e);
    let preserve = spec.get("preserveUnknownFields");
    if preserve.is_true() && !old.is_some_and(|old| old.get("spec").get("preserveUnknownFields").is_true()) {
        let message =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        preserve.invalid(e, message);
    }
}

/// The faults of the status of a definition.
pub(super) fn status(new: &At, _: &At, e: &mut Errors) {
    let status = new.get("status");
    kind_names(&status.get("acceptedNames"), e);
}

/// What all versions have alike in a field; upstream keeps it once, above them.
fn shared<'v>(spec: &At<'v, '_>, field: &str) -> Option<&'v Value> {
    let versions = spec.get("versions").value.as_array()?;
    let first = versions.first()?.get(field)?;
    versions.iter().all(|version| version.get(field).is_some_and(|value| same(value, first))).then_some(first)
}

fn spec(spec: &At, e: &mut Errors) {
    let (group, versions) = (spec.get("group"), spec.get("versions"));
    if group.require(e) {
        let faults = names::subdomain(group.text());
        if !faults.is_empty() {
            group.invalid_text(e, faults.join(","));
        } else if !group.text().contains('.') {
            group.invalid_text(e, "should be a domain with at least one dot");
        }
    }
    spec.get("scope").required_one_of(e, &["Cluster", "Namespaced"]);
    for version in versions.items() {
        let schema = version.get("schema");
        if !schema.get("openAPIV3Schema").exists() {
            schema.get("openAPIV3Schema").required(e, "");
        }
    }
    let own = |field: &str| shared(spec, field).is_none();
    for version in versions.items() {
        let name = version.get("name");
        let faults = names::label_1035(name.text());
        if !faults.is_empty() {
            name.invalid_text(e, faults.join(","));
        }
        self::version(&version, &own, e);
    }
    version_list(spec, e);
    let first = spec.called("version", versions.index(0).get("name").value);
    let faults = names::label_1035(first.text());
    if first.exists() && !faults.is_empty() {
        first.invalid_text(e, faults.join(","));
    }
    let kind = spec.get("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        kind.get(field).require(e);
    }
    kind_names(&kind, e);
    common_parts(spec, e);
    conversion(&spec.get("conversion"), e);
}

fn version(at: &At, own: &dyn Fn(&str) -> bool, e: &mut Errors) {
    let warning = at.get("deprecationWarning");
    if warning.exists() {
        if !at.get("deprecated").is_true() {
            warning.invalid(e, "can only be set for deprecated versions");
        } else if warning.is_empty() {
            warning.invalid(e, "must not be an empty string");
        } else if warning.text().len() > 256 {
            warning.invalid(e, "must be <= 256 characters long");
        }
    }
    let status = at.get("subresources").get("status").exists();
    if own("schema") {
        schema::check(&at.get("schema").get("openAPIV3Schema"), status, e);
    }
    if own("subresources") {
        subresources(&at.get("subresources"), e);
    }
    if own("additionalPrinterColumns") {
        at.get("additionalPrinterColumns").items().for_each(|column| self::column(&column, e));
    }
    if own("selectableFields") {
        let root = at.get("schema").get("openAPIV3Schema").value;
        selectable(&at.get("selectableFields"), root, e);
    }
}

/// The faults of what all versions share.
fn common_parts(spec: &At, e: &mut Errors) {
    let versions = spec.get("versions");
    let status = versions.items().any(|version| version.get("subresources").get("status").exists());
    let validation = shared(spec, "schema").unwrap_or(&Value::Null);
    let place = spec.called("validation", validation);
    schema::check(&place.get("openAPIV3Schema"), status, e);
    subresources(&spec.called("subresources", shared(spec, "subresources").unwrap_or(&Value::Null)), e);
    let columns = shared(spec, "additionalPrinterColumns").unwrap_or(&Value::Null);
    spec.called("additionalPrinterColumns", columns).items().for_each(|column| self::column(&column, e));
    let fields = spec.called("selectableFields", shared(spec, "selectableFields").unwrap_or(&Value::Null));
    selectable(&fields, place.get("openAPIV3Schema").value, e);
}

fn version_list(spec: &At, e: &mut Errors) {
    let versions = spec.get("versions");
    let shown = || {
        let mut list = versions.value.clone();
        for field in ["schema", "subresources", "additionalPrinterColumns", "selectableFields"] {
            if shared(spec, field).is_some() {
                let items = list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
                items.for_each(|version| drop(version.remove(field)));
            }
        }
        Bad::Shown(shown_versions(&list))
    };
    let mut seen = Vec::new();
    let unique = versions.items().all(|version| {
        let name = version.get("name").text();
        let new = !seen.contains(&name);
        seen.push(name);
        new
    });
    if !unique {
        versions.fault(e, Fault::Invalid(shown()), "must contain unique version names");
    }
    if versions.items().filter(|version| version.get("storage").is_true()).count() != 1 {
        versions.fault(e, Fault::Invalid(shown()), "must have exactly one version marked as storage version");
    }
}

/// Upstream's internal form of versions has pointers where the served one has structs.
fn shown_versions(list: &Value) -> String {
    if list.as_array().is_none_or(Vec::is_empty) {
        return "null".to_owned();
    }
    render::internal_list("apiextensions/v1.CustomResourceDefinitionVersion", list)
}

fn kind_names(at: &At, e: &mut Errors) {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = at.get(field);
        let mixed = field == "kind" || field == "listKind";
        let text = if mixed { name.text().to_lowercase() } else { name.text().to_owned() };
        let faults = names::label_1035(&text);
        if !text.is_empty() && !faults.is_empty() {
            name.invalid_text(e, format!("{}{}", if mixed { MIXED } else { "" }, faults.join(",")));
        }
    }
    let list = |field: &str, e: &mut Errors| {
        for name in at.get(field).items() {
            let faults = names::label_1035(name.text());
            if !faults.is_empty() {
                name.invalid_text(e, faults.join(","));
            }
        }
    };
    list("shortNames", e);
    if !at.get("kind").is_empty() && at.get("kind").text() == at.get("listKind").text() {
        at.get("listKind").invalid_text(e, "kind and listKind may not be the same");
    }
    list("categories", e);
}

fn subresources(at: &At, e: &mut Errors) {
    let scale = at.get("scale");
    if !scale.exists() {
        return;
    }
    let rules: [(&str, &str, &[&str], &str); 3] = [
        ("specReplicasPath", "scale.specReplicasPath", &[".spec."], "should be a json path under .spec"),
        ("statusReplicasPath", "scale.statusReplicasPath", &[".status."], "should be a json path under .status"),
        (
            "labelSelectorPath",
            "scale.labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ];
    for (field, shown, roots, message) in rules {
        let path = at.called(shown, scale.get(field).value);
        if path.is_empty() {
            if field != "labelSelectorPath" {
                path.required(e, "");
            }
        } else if !path.text().starts_with('.') {
            path.invalid_text(e, "must be a simple json path starting with .");
        } else if !roots.iter().any(|root| path.text().starts_with(root)) {
            path.invalid_text(e, message);
        }
    }
}

fn column(at: &At, e: &mut Errors) {
    let (kind, format) = (at.get("type"), at.get("format"));
    at.get("name").require(e);
    if kind.is_empty() {
        kind.required(e, format!("must be one of {COLUMN_TYPES}"));
    } else if !COLUMN_TYPES.split(',').any(|known| known == kind.text()) {
        kind.invalid_text(e, format!("must be one of {COLUMN_TYPES}"));
    }
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
        format.invalid_text(e, format!("must be one of {}", COLUMN_FORMATS.join(",")));
    }
    let path = at.called("JSONPath", at.get("jsonPath").value);
    if path.require(e) && !path.text().starts_with('.') {
        path.invalid_text(e, "must be a simple json path starting with .");
    }
}

fn selectable(list: &At, root: &Value, e: &mut Errors) {
    const MOST: usize = 8;
    let mut seen = Vec::new();
    for field in list.items() {
        let path = field.get("jsonPath");
        if !path.require(e) {
            continue;
        }
        let steps: Vec<&str> = path.text().trim_start_matches('.').split('.').collect();
        let found = steps.iter().try_fold(root, |schema, step| schema.get("properties")?.get(step));
        let Some(found) = found else {
            path.invalid_text(e, "is an invalid path: does not refer to a valid field");
            continue;
        };
        if steps.first() == Some(&"metadata") {
            path.invalid_text(e, "must not point to fields in metadata");
        }
        if !matches!(found.get("type").and_then(Value::as_str), Some("string" | "boolean" | "integer")) {
            let message = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                formats are allowed.";
            path.invalid_text(e, message);
        }
        if seen.contains(&path.text()) {
            path.duplicate(e, path.text());
        } else {
            seen.push(path.text());
        }
    }
    if seen.len() > MOST {
        list.fault(e, Fault::TooMany(seen.len()), format!("must have at most {MOST} items"));
    }
}

fn conversion(at: &At, e: &mut Errors) {
    if !at.exists() {
        return;
    }
    let strategy = at.get("strategy");
    strategy.required_one_of(e, &["None", "Webhook"]);
    let webhook = at.get("webhook");
    let client = at.called("webhookClientConfig", webhook.get("clientConfig").value);
    let versions = at.called("conversionReviewVersions", webhook.get("conversionReviewVersions").value);
    if strategy.text() != "Webhook" {
        for given in [&client, &versions].into_iter().filter(|given| given.exists()) {
            given.forbidden(e, "should not be set when strategy is not set to Webhook");
        }
        return;
    }
    if client.exists() {
        webhook::client(&client, e);
    } else {
        client.required(e, "required when strategy is set to Webhook");
    }
    if versions.require(e) {
        webhook::review_versions(&versions, e);
    }
}

fn changed(spec: &At, old: &At, e: &mut Errors) {
    let before = old.get("spec");
    let status = old.get("status");
    let established = status
        .get("conditions")
        .items()
        .any(|condition| condition.get("type").text() == "Established" && condition.get("status").text() == "True");
    let (kind, was) = (spec.get("names"), before.get("names"));
    if established {
        spec.get("scope").unchanged(e, &before.get("scope"));
        kind.get("kind").unchanged(e, &was.get("kind"));
    }
    spec.get("group").unchanged(e, &before.get("group"));
    kind.get("plural").unchanged(e, &was.get("plural"));
}

fn stored_versions(at: &At, spec: &At, e: &mut Errors) {
    if at.is_empty() {
        return at.invalid(e, "must have at least one stored version");
    }
    let versions = spec.get("versions");
    for version in versions.items().filter(|version| version.get("storage").is_true()) {
        let name = version.get("name").text();
        if !at.texts().any(|stored| stored == name) {
            at.invalid(e, format!("must have the storage version {name}"));
        }
    }
    for stored in at.items() {
        let name = stored.text();
        if !versions.items().any(|version| version.get("name").text() == name) {
            stored.invalid_text(
                e,
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
                     a storage migration ensures no data remains persisted in {name} and removes {name} from \
                     status.storedVersions"
                ),
            );
        }
    }
}

/// Groups of the community need the community's approval.
fn approval(new: &At, old: Option<&At>, e: &mut Errors) {
    let (spec, meta) = (new.get("spec"), new.get("metadata"));
    let group = spec.get("group").text();
    let protected =
        ["k8s.io", "kubernetes.io"].iter().any(|root| group == *root || group.ends_with(&format!(".{root}")));
    let note = |at: &At| at.get("metadata").get("annotations").get(APPROVED).text().to_owned();
    if !protected || old.is_some_and(|old| note(old) == note(new)) {
        return;
    }
    let notes = meta.get("annotations");
    let at = notes.key(APPROVED);
    if at.is_empty() {
        let message = format!(
            "protected groups must have approval annotation {APPROVED:?}, see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        at.required(e, message);
    } else if !at.text().starts_with("unapproved") && !at.text().contains("://") {
        let message = format!(
            "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \
             \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        at.invalid_text(e, message);
    }
}
