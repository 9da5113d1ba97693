//! Validation of CustomResourceDefinitions; schemas are in `custom_schema`.
//!
//! Upstream validates an internal form that keeps fields shared by all versions above them; error paths follow that
//! form.

use super::{admission, prelude::*, structural_schema as schema};

const APPROVED_ANNOTATION: &str = "api-approved.kubernetes.io";

/// Requires the name `<plural>.<group>`.
pub fn validate_definition_name(new: &FieldCursor, e: &mut ErrorList) {
    let (meta, spec) = (new.get("metadata"), new.get("spec"));
    let name = meta.get("name");
    if name.is_empty() {
        return;
    }
    let wanted = format!("{}.{}", spec.get("names").get("plural").text(), spec.get("group").text());
    name.check_format(e, names::check_dns_subdomain);
    if name.text() != wanted {
        name.invalid_text(e, "must be spec.names.plural+\".\"+spec.group");
    }
}

/// The value of a field that is equal in all versions, which upstream keeps above them.
fn shared_field<'v>(spec: &FieldCursor<'v, '_>, field: &str) -> Option<&'v Value> {
    let versions = spec.get("versions").value.as_array()?;
    let first = versions.first()?.get(field)?;
    versions
        .iter()
        .all(|version| version.get(field).is_some_and(|value| semantically_equal(value, first)))
        .then_some(first)
}

/// Validates the spec of a CRD.
pub fn validate_definition(spec: &FieldCursor, e: &mut ErrorList) {
    check_block("DefinitionHead", spec, e);
    let versions = spec.get("versions");
    let own = |field: &str| shared_field(spec, field).is_none();
    for version in versions.items() {
        check_label_joined(&version.get("name"), e);
        self::validate_version(&version, &own, e);
    }
    validate_version_list(spec, e);
    let first = spec.child_as("version", versions.element(0).get("name").value);
    if first.exists() {
        check_label_joined(&first, e);
    }
    let kind = spec.get("names");
    check_block("DefinitionNames", &kind, e);
    validate_kind_names(&kind, e);
    validate_shared_fields(spec, e);
    if spec.get("conversion").exists() {
        check_block("Conversion", &spec.get("conversion"), e);
    }
}

fn check_label_joined(name: &FieldCursor, e: &mut ErrorList) {
    let faults = names::check_1035_label(name.text());
    if !faults.is_empty() {
        name.invalid_text(e, faults.join(","));
    }
}

pub fn validate_domain_of_group(group: &FieldCursor, e: &mut ErrorList) {
    let faults = names::check_dns_subdomain(group.text());
    if !faults.is_empty() {
        group.invalid_text(e, faults.join(","));
    } else if !group.text().contains('.') {
        group.invalid_text(e, "should be a domain with at least one dot");
    }
}

fn validate_version(at: &FieldCursor, own: &dyn Fn(&str) -> bool, e: &mut ErrorList) {
    check_block("VersionWarning", at, e);
    let status = at.get("subresources").get("status").exists();
    if own("schema") {
        schema::validate_schema(&at.get("schema").get("openAPIV3Schema"), status, e);
    }
    if own("subresources") {
        check_block("Subresources", &at.get("subresources"), e);
    }
    if own("additionalPrinterColumns") {
        at.get("additionalPrinterColumns").items().for_each(|column| check_block("PrinterColumn", &column, e));
    }
    if own("selectableFields") {
        let root = at.get("schema").get("openAPIV3Schema").value;
        validate_selectable_fields(&at.get("selectableFields"), root, e);
    }
}

/// Validates the fields shared by all versions.
fn validate_shared_fields(spec: &FieldCursor, e: &mut ErrorList) {
    let versions = spec.get("versions");
    let status = versions.items().any(|version| version.get("subresources").get("status").exists());
    let validation = shared_field(spec, "schema").unwrap_or(&Value::Null);
    let place = spec.child_as("validation", validation);
    schema::validate_schema(&place.get("openAPIV3Schema"), status, e);
    let parts = shared_field(spec, "subresources").unwrap_or(&Value::Null);
    check_block("Subresources", &spec.child_as("subresources", parts), e);
    let columns = shared_field(spec, "additionalPrinterColumns").unwrap_or(&Value::Null);
    let columns = spec.child_as("additionalPrinterColumns", columns);
    columns.items().for_each(|column| check_block("PrinterColumn", &column, e));
    let fields = spec.child_as("selectableFields", shared_field(spec, "selectableFields").unwrap_or(&Value::Null));
    validate_selectable_fields(&fields, place.get("openAPIV3Schema").value, e);
}

fn validate_version_list(spec: &FieldCursor, e: &mut ErrorList) {
    let versions = spec.get("versions");
    let shown = || {
        let mut list = versions.value.clone();
        for field in ["schema", "subresources", "additionalPrinterColumns", "selectableFields"] {
            if shared_field(spec, field).is_some() {
                let items = list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
                items.for_each(|version| drop(version.remove(field)));
            }
        }
        BadValue::Rendered(render_versions(&list))
    };
    let mut unique = true;
    versions.for_each_duplicate(|version| version.text_at("name"), |_, _| unique = false);
    if !unique {
        versions.push_error(e, FieldErrorType::Invalid(shown()), "must contain unique version names");
    }
    if versions.items().filter(|version| version.get("storage").is_true()).count() != 1 {
        versions.push_error(
            e,
            FieldErrorType::Invalid(shown()),
            "must have exactly one version marked as storage version",
        );
    }
}

/// Renders versions in upstream's internal form, which has pointers instead of structs.
fn render_versions(list: &Value) -> String {
    if list.as_array().is_none_or(Vec::is_empty) {
        return "null".to_owned();
    }
    render_bad_value("apiextensions/v1.CustomResourceDefinitionVersion", list).to_string()
}

/// Validates the names of a CRD.
pub fn validate_kind_names(at: &FieldCursor, e: &mut ErrorList) {
    let each = |list: &str, e: &mut ErrorList| at.get(list).items().for_each(|name| check_label_joined(&name, e));
    for name in ["plural", "singular"].map(|field| at.get(field)).iter().filter(|name| !name.is_empty()) {
        check_label_joined(name, e);
    }
    for name in ["kind", "listKind"].map(|field| at.get(field)).iter().filter(|name| !name.is_empty()) {
        admission::validate_mixed_case_kind(name, e);
    }
    each("shortNames", e);
    if !at.get("kind").is_empty() && at.text_at("kind") == at.text_at("listKind") {
        at.get("listKind").invalid_text(e, "kind and listKind may not be the same");
    }
    each("categories", e);
}

fn validate_selectable_fields(list: &FieldCursor, root: &Value, e: &mut ErrorList) {
    const MOST: usize = 8;
    let mut seen = Vec::new();
    for field in list.items() {
        let path = field.get("jsonPath");
        if !path.require_value(e) {
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
        list.push_error(e, FieldErrorType::TooMany(seen.len()), format!("must have at most {MOST} items"));
    }
}

/// Requires stored identity fields to stay.
pub fn validate_definition_change(new: &FieldCursor, e: &mut ErrorList) {
    let (old, spec) = (new.old_cursor(), new.get("spec"));
    let status = old.get("status");
    let conditions = status.get("conditions");
    let established = conditions.find_by("type", "Established");
    let kind = spec.get("names");
    let mut fixed = vec![spec.get("group"), kind.get("plural")];
    if established.is_some_and(|condition| condition.text_at("status") == "True") {
        fixed.splice(..0, [spec.get("scope"), kind.get("kind")]);
    }
    fixed.iter().filter(|field| field.is_changed()).for_each(|field| field.invalid(e, IMMUTABLE));
}

/// Requires stored versions to remain in the spec.
pub fn validate_stored_versions(new: &FieldCursor, e: &mut ErrorList) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    let at = status.get("storedVersions");
    if at.is_empty() {
        return at.invalid(e, "must have at least one stored version");
    }
    let versions = spec.get("versions");
    for version in versions.items().filter(|version| version.get("storage").is_true()) {
        let name = version.get("name").text();
        if !at.contains_text(name) {
            at.invalid(e, format!("must have the storage version {name}"));
        }
    }
    for stored in at.items() {
        let name = stored.text();
        if versions.find_by("name", name).is_none() {
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

/// Requires the approval annotation for protected groups.
pub fn validate_approval(new: &FieldCursor, e: &mut ErrorList) {
    let (spec, meta) = (new.get("spec"), new.get("metadata"));
    let group = spec.get("group").text();
    let protected =
        ["k8s.io", "kubernetes.io"].iter().any(|root| group == *root || group.ends_with(&format!(".{root}")));
    let note = |at: &FieldCursor| at.get("metadata").get("annotations").get(APPROVED_ANNOTATION).text().to_owned();
    if !protected || new.is_update() && note(&new.old_cursor()) == note(new) {
        return;
    }
    let notes = meta.get("annotations");
    let at = notes.entry(APPROVED_ANNOTATION);
    if at.is_empty() {
        let message = format!(
            "protected groups must have approval annotation {APPROVED_ANNOTATION:?}, see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        at.required(e, message);
    } else if !at.text().starts_with("unapproved") && !at.text().contains("://") {
        let message = format!(
            "protected groups must have approval annotation {APPROVED_ANNOTATION:?} with either a URL or a reason starting with \
             \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        at.invalid_text(e, message);
    }
}
