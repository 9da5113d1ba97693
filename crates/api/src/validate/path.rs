//! Validation of file names that pods give: relative, and never out of their volume.

use super::{Errors, at::At};

/// No part of the path may go up.
pub(super) fn no_backsteps(at: &At, e: &mut Errors) {
    if at.text().split('/').any(|part| part == "..") {
        at.invalid_text(e, "must not contain '..'");
    }
}

/// A path inside a volume.
pub(super) fn relative(at: &At, e: &mut Errors) {
    if at.text().starts_with('/') {
        at.invalid_text(e, "must be a relative path");
    }
    no_backsteps(at, e);
}

/// A path inside a volume whose first part is not one that kubelets use.
pub(super) fn not_reserved(at: &At, e: &mut Errors) {
    relative(at, e);
    if at.text().starts_with("..") && !at.text().starts_with("../") {
        at.invalid_text(e, "must not start with '..'");
    }
}
