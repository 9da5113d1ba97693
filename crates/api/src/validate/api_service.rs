//! Registrations of API versions, as far as the tables cannot say what is right.

use super::{config, prelude::*};

pub(super) const FUNCTIONS: Functions = functions! { service_name no_bundle };

/// The name is made of version and group.
fn service_name(new: &At, e: &mut Errors) {
    let (spec, meta) = (new.get("spec"), new.get("metadata"));
    let name = meta.get("name");
    let wanted = format!("{}.{}", spec.text_of("version"), spec.text_of("group"));
    if !name.is_empty() && names::path_segment(name.text()).is_empty() && name.text() != wanted {
        name.invalid_text(e, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
}

fn no_bundle(bundle: &At, e: &mut Errors) {
    if !bundle.is_empty() {
        let bytes = config::decoded_length(bundle.text());
        bundle.invalid_as(e, format!("{bytes} bytes"), "local APIServices may not have a caBundle");
    }
}
