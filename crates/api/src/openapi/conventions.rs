//! Differences between the OpenAPI routes of built-in and custom resources. kube-apiserver generates the two
//! separately, and clients are generated from both.

use super::route::{ANY, LIST, OBJECT, PATCH};

/// The conventions of a resource's routes.
#[derive(Debug)]
pub(super) struct Conventions {
    /// Media types of request bodies.
    pub consumes: &'static [&'static str],
    /// Media types of patches.
    pub patches: &'static [&'static str],
    /// Media types of responses with an object.
    pub produces: &'static [&'static str],
    /// Media types of lists and watches.
    pub lists: &'static [&'static str],
    /// The options struct of reads.
    pub read: Option<&'static str>,
    /// The response codes of patches: an apply may create.
    pub patched: &'static [u16],
    /// The parameters of deletecollection.
    pub delete_collection: CollectionDelete,
    /// Whether subresource operations carry the subresource's kind instead of the object's.
    pub parts_have_kinds: bool,
    /// Whether the deprecated watch paths exist.
    pub watch_paths: bool,
}

/// The parameters of deletecollection.
#[derive(Debug)]
pub(super) struct CollectionDelete {
    pub options: &'static [&'static str],
    /// The options that are left out.
    pub without: &'static [&'static str],
    pub body: Option<&'static str>,
}

/// The media types of custom resources.
const FORMS: &[&str] = &["application/json", "application/yaml"];

pub(super) static BUILT_IN: Conventions = Conventions {
    consumes: ANY,
    patches: PATCH,
    produces: OBJECT,
    lists: LIST,
    read: None,
    patched: &[200, 201],
    delete_collection: CollectionDelete {
        options: &["meta/v1.DeleteOptions", "meta/v1.ListOptions"],
        without: &["watch", "allowWatchBookmarks"],
        body: Some("meta/v1.DeleteOptions"),
    },
    parts_have_kinds: true,
    watch_paths: true,
};

pub(super) static CUSTOM: Conventions = Conventions {
    consumes: FORMS,
    patches: &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"],
    produces: FORMS,
    lists: FORMS,
    read: Some("meta/v1.GetOptions"),
    patched: &[200],
    delete_collection: CollectionDelete { options: &["meta/v1.ListOptions"], without: &[], body: None },
    parts_have_kinds: false,
    watch_paths: false,
};
