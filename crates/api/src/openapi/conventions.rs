//! Differences between the OpenAPI routes of built-in and custom resources. kube-apiserver generates the two
//! separately, and clients are generated from both.

use super::route::{ANY_MEDIA, LIST_MEDIA, OBJECT_MEDIA, PATCH_MEDIA};

/// The conventions of a resource's routes.
#[derive(Debug)]
pub(super) struct RouteConventions {
    /// Media types of request bodies.
    pub consumes: &'static [&'static str],
    /// Media types of patches.
    pub patches: &'static [&'static str],
    /// Media types of responses with an object.
    pub produces: &'static [&'static str],
    /// Media types of lists and watches.
    pub lists: &'static [&'static str],
    /// The options struct of reads.
    pub read_options: Option<&'static str>,
    /// The response codes of patches: an apply may create.
    pub patch_codes: &'static [u16],
    /// The parameters of deletecollection.
    pub delete_collection: DeleteCollectionConventions,
    /// Whether subresource operations carry the subresource's kind instead of the object's.
    pub subresources_have_kinds: bool,
    /// Whether the deprecated watch paths exist.
    pub watch_paths: bool,
}

/// The parameters of deletecollection.
#[derive(Debug)]
pub(super) struct DeleteCollectionConventions {
    pub options: &'static [&'static str],
    /// The options that are left out.
    pub without: &'static [&'static str],
    pub body: Option<&'static str>,
}

/// The media types of custom resources.
const CUSTOM_MEDIA_TYPES: &[&str] = &["application/json", "application/yaml"];

pub(super) static BUILT_IN: RouteConventions = RouteConventions {
    consumes: ANY_MEDIA,
    patches: PATCH_MEDIA,
    produces: OBJECT_MEDIA,
    lists: LIST_MEDIA,
    read_options: None,
    patch_codes: &[200, 201],
    delete_collection: DeleteCollectionConventions {
        options: &["meta/v1.DeleteOptions", "meta/v1.ListOptions"],
        without: &["watch", "allowWatchBookmarks"],
        body: Some("meta/v1.DeleteOptions"),
    },
    subresources_have_kinds: true,
    watch_paths: true,
};

pub(super) static CUSTOM: RouteConventions = RouteConventions {
    consumes: CUSTOM_MEDIA_TYPES,
    patches: &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"],
    produces: CUSTOM_MEDIA_TYPES,
    lists: CUSTOM_MEDIA_TYPES,
    read_options: Some("meta/v1.GetOptions"),
    patch_codes: &[200],
    delete_collection: DeleteCollectionConventions { options: &["meta/v1.ListOptions"], without: &[], body: None },
    subresources_have_kinds: false,
    watch_paths: false,
};
