//! OpenAPI documents of custom resources: routes as for any resource, schemas from the CRDs.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    components::ComponentSchemas, operations::OperationWriter, resource_routes::resource_routes, route::OpenApiRoute,
};
use crate::{Value, schema::Resource};

/// The components that all custom schemas refer to.
const COMMON_COMPONENTS: &[&str] = &["meta/v1.ObjectMeta", "meta/v1.ListMeta"];

/// Builds the v3 document of the custom resources of one group-version, with the schemas of their kinds by name; `None`
/// without resources.
pub fn custom_resource_document(rows: &[&Resource], schemas: BTreeMap<String, Value>) -> Option<Value> {
    rows.first()?;
    let components = ComponentSchemas::for_v3_custom_resources();
    let routes: Vec<OpenApiRoute> = rows.iter().flat_map(|row| resource_routes(row)).collect();
    let common = COMMON_COMPONENTS.iter().map(|key| (*key).to_owned());
    let mut known =
        components.schemas_with_references(routes.iter().flat_map(OpenApiRoute::component_keys).chain(common));
    known.extend(schemas);
    let paths = OperationWriter::new(&components).write_paths(&routes);
    // Title and version are upstream's; clients recognize these documents by them.
    let info = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": known}}))
}

/// Builds what custom resources add to the v2 document besides schemas: calls `path` for each path item and returns the
/// shared parameters.
pub fn custom_resource_paths_v2(rows: &[&Resource], mut path: impl FnMut(String, Value)) -> BTreeMap<String, Value> {
    let components = ComponentSchemas::for_v2();
    let mut writer = OperationWriter::new(&components);
    for row in rows {
        writer.write_paths(&resource_routes(row)).into_iter().for_each(|(name, item)| path(name, item));
    }
    writer.shared
}
