//! Validation of definitions of custom resources. Schemas have a file of their own.
//!
//! Upstream checks a definition in a form in which what all versions share stands once, above them; paths of faults are
//! those of that form.

use super::{admission, custom_schema as schema, prelude::*};

const APPROVED: &str = "api-approved.kubernetes.io";

/// The name is made of plural and group.
pub fn definition_name(new: &At, e: &mut Errors) {
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

/// What all versions have alike in a field; upstream keeps it once, above them.
fn shared<'v>(spec: &At<'v, '_>, field: &str) -> Option<&'v Value> {
    let versions = spec.get("versions").value.as_array()?;
    let first = versions.first()?.get(field)?;
    versions.iter().all(|version| version.get(field).is_some_and(|value| same(value, first))).then_some(first)
}

/// The faults of the specification of a definition.
pub fn definition(spec: &At, e: &mut Errors) {
    rules::check("DefinitionHead", spec, e);
    let versions = spec.get("versions");
    let own = |field: &str| shared(spec, field).is_none();
    for version in versions.items() {
        joined(&version.get("name"), e);
        self::version(&version, &own, e);
    }
    version_list(spec, e);
    let first = spec.called("version", versions.index(0).get("name").value);
    if first.exists() {
        joined(&first, e);
    }
    let kind = spec.get("names");
    rules::check("DefinitionNames", &kind, e);
    kind_names(&kind, e);
    common_parts(spec, e);
    if spec.get("conversion").exists() {
        rules::check("Conversion", &spec.get("conversion"), e);
    }
}

fn joined(name: &At, e: &mut Errors) {
    let faults = names::label_1035(name.text());
    if !faults.is_empty() {
        name.invalid_text(e, faults.join(","));
    }
}

pub fn domain_of_group(group: &At, e: &mut Errors) {
    let faults = names::subdomain(group.text());
    if !faults.is_empty() {
        group.invalid_text(e, faults.join(","));
    } else if !group.text().contains('.') {
        group.invalid_text(e, "should be a domain with at least one dot");
    }
}

fn version(at: &At, own: &dyn Fn(&str) -> bool, e: &mut Errors) {
    rules::check("VersionWarning", at, e);
    let status = at.get("subresources").get("status").exists();
    if own("schema") {
        schema::check(&at.get("schema").get("openAPIV3Schema"), status, e);
    }
    if own("subresources") {
        rules::check("Subresources", &at.get("subresources"), e);
    }
    if own("additionalPrinterColumns") {
        at.get("additionalPrinterColumns").items().for_each(|column| rules::check("PrinterColumn", &column, e));
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
    let parts = shared(spec, "subresources").unwrap_or(&Value::Null);
    rules::check("Subresources", &spec.called("subresources", parts), e);
    let columns = shared(spec, "additionalPrinterColumns").unwrap_or(&Value::Null);
    let columns = spec.called("additionalPrinterColumns", columns);
    columns.items().for_each(|column| rules::check("PrinterColumn", &column, e));
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
    let mut unique = true;
    versions.unique(|version| version.text_of("name"), |_, _| unique = false);
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
    Bad::of("apiextensions/v1.CustomResourceDefinitionVersion", list).to_string()
}

/// The faults of the names of a kind.
pub fn kind_names(at: &At, e: &mut Errors) {
    let each = |list: &str, e: &mut Errors| at.get(list).items().for_each(|name| joined(&name, e));
    for name in ["plural", "singular"].map(|field| at.get(field)).iter().filter(|name| !name.is_empty()) {
        joined(name, e);
    }
    for name in ["kind", "listKind"].map(|field| at.get(field)).iter().filter(|name| !name.is_empty()) {
        admission::mixed_case_kind(name, e);
    }
    each("shortNames", e);
    if !at.get("kind").is_empty() && at.text_of("kind") == at.text_of("listKind") {
        at.get("listKind").invalid_text(e, "kind and listKind may not be the same");
    }
    each("categories", e);
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

/// What objects are stored under stays.
pub fn definition_change(new: &At, e: &mut Errors) {
    let (old, spec) = (new.before(), new.get("spec"));
    let status = old.get("status");
    let conditions = status.get("conditions");
    let established = conditions.find("type", "Established");
    let kind = spec.get("names");
    let mut fixed = vec![spec.get("group"), kind.get("plural")];
    if established.is_some_and(|condition| condition.text_of("status") == "True") {
        fixed.splice(..0, [spec.get("scope"), kind.get("kind")]);
    }
    fixed.iter().filter(|field| field.differs()).for_each(|field| field.invalid(e, IMMUTABLE));
}

/// The versions that objects are stored in are still there.
pub fn stored_versions(new: &At, e: &mut Errors) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let at = status.get("storedVersions");
    if at.is_empty() {
        return at.invalid(e, "must have at least one stored version");
    }
    let versions = spec.get("versions");
    for version in versions.items().filter(|version| version.get("storage").is_true()) {
        let name = version.get("name").text();
        if !at.has(name) {
            at.invalid(e, format!("must have the storage version {name}"));
        }
    }
    for stored in at.items() {
        let name = stored.text();
        if versions.find("name", name).is_none() {
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
pub fn approval(new: &At, e: &mut Errors) {
    let (spec, meta) = (new.get("spec"), new.get("metadata"));
    let group = spec.get("group").text();
    let protected =
        ["k8s.io", "kubernetes.io"].iter().any(|root| group == *root || group.ends_with(&format!(".{root}")));
    let note = |at: &At| at.get("metadata").get("annotations").get(APPROVED).text().to_owned();
    if !protected || new.is_change() && note(&new.before()) == note(new) {
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
