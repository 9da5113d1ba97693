//! Tests the resource that `docs/add-a-resource.md` adds as its example; unit tests have it in their tables.

use serde_json::json;

use super::{ApiSchema, resource_table, type_tables};
use crate::{
    Value,
    decode::{self, FieldValidation},
    defaults, discovery, openapi, protobuf, table, validate,
};

const ADD_A_RESOURCE: &str = include_str!("../../../../docs/add-a-resource.md");

/// Returns the lines of the example that follow a file name, without their indentation.
pub fn example_lines(file: &str) -> String {
    let (_, rest) = ADD_A_RESOURCE.split_once(file).expect("the example names its files");
    let block = rest
        .lines()
        .skip_while(|line| !line.starts_with("       "))
        .take_while(|line| line.is_empty() || line.starts_with("       "));
    block.map(|line| format!("{}\n", line.get(7..).unwrap_or_default())).collect()
}

/// Parses the tables with the example appended.
pub fn schema_with_example() -> ApiSchema {
    let types = format!("{}@harbour_v1\n{}", type_tables::TYPE_TABLES, example_lines("schema/types/harbour_v1.txt"));
    let resources = format!("{}\n{}", resource_table::RESOURCE_TABLE, example_lines("schema/resources.txt"));
    type_tables::parse_schema(types.leak(), resources.leak())
}

#[test]
fn documented_resource_is_served_by_tables_alone() {
    let boats = super::schema().resource("harbour.example.io", "v1", "boats").expect("boats are served");
    let text =
        json!({"apiVersion": "harbour.example.io/v1", "kind": "Boat", "metadata": {"name": "b", "namespace": "n"},
        "spec": {"rented": true}})
        .to_string();
    let (mut boat, _) = decode::decode_json(boats.ty, text.as_bytes(), FieldValidation::Strict).expect("a boat");
    defaults::apply_defaults(boats.ty, &mut boat);
    assert_eq!(boat["spec"]["berths"], 1);
    let faults =
        |boat: &Value| validate::validate_create(boats, boat).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(faults(&boat), ["spec.owner: Required value"]);
    boat["spec"]["owner"] = "o".into();
    assert!(faults(&boat).is_empty());
    boat["spec"]["berths"] = 0.into();
    assert_eq!(faults(&boat), ["spec.berths: Invalid value: 0: a boat needs a berth"]);
    assert_eq!(protobuf::decode_object(&protobuf::encode_object(boats, &boat)), Ok(boat.clone()));
    decode::decode_json(boats.ty, br#"{"spec": {"sails": 1}}"#, FieldValidation::Strict)
        .expect_err("boats have no sails here");
    let list = discovery::resource_list("harbour.example.io", "v1").expect("a document");
    assert_eq!(list["resources"][0]["shortNames"], json!(["bo"]));
    let document = openapi::v3_document("apis/harbour.example.io/v1").expect("a document");
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["io.k8s.api.harbour.v1.BoatSpec"]["properties"]["berths"]["default"], 1);
    let printed = table::build_table(
        boats,
        [&boat].into_iter(),
        json!({}),
        table::IncludeObject::None,
        jiff::Timestamp::UNIX_EPOCH,
    );
    assert_eq!(printed["rows"][0]["cells"][0], "b");
}
