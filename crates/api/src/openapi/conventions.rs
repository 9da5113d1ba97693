//! In what the routes of built-in and of custom resources differ. kube-apiserver writes the two by different programs, and
//! clients are generated from what either says; the routes themselves are made in one way, which asks here.

use super::route::{ANY, LIST, OBJECT, PATCH};

/// What the routes of a resource have.
#[derive(Debug)]
pub(super) struct Conventions {
    /// What requests with an object are written in.
    pub consumes: &'static [&'static str],
    /// What patches are written in.
    pub patches: &'static [&'static str],
    /// What objects are answered in.
    pub produces: &'static [&'static str],
    /// What lists and watches are answered in.
    pub lists: &'static [&'static str],
    /// The options of reading an object.
    pub read: Option<&'static str>,
    /// How a patch is answered: an apply may create.
    pub patched: &'static [u16],
    /// How a collection is deleted.
    pub delete_collection: CollectionDelete,
    /// Whether operations on a part of an object are told by the kind of the part instead of the object's.
    pub parts_have_kinds: bool,
    /// Whether there are the old paths of watches.
    pub watch_paths: bool,
}

/// What a request takes that deletes a collection.
#[derive(Debug)]
pub(super) struct CollectionDelete {
    pub options: &'static [&'static str],
    /// Which of the options are left out.
    pub without: &'static [&'static str],
    pub body: Option<&'static str>,
}

/// The forms of objects that the schemas of definitions know.
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
