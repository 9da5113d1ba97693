//! The resource that `CONTRIBUTING.md` adds, in the tables of every unit test: what it says is proven here.

use serde_json::json;

use super::{Schema, parse, resources};
use crate::{
    Value,
    decode::{self, Mode},
    defaults, discovery, openapi, protobuf, table, validate,
};

const TEXT: &str = include_str!("../../../../CONTRIBUTING.md");

/// The lines of the example after one that names a file, without their indentation.
pub fn lines(file: &str) -> String {
    let (_, rest) = TEXT.split_once(file).expect("the example names its files");
    let block = rest
        .lines()
        .skip_while(|line| !line.starts_with("       "))
        .take_while(|line| line.is_empty() || line.starts_with("       "));
    block.map(|line| format!("{}\n", line.get(7..).unwrap_or_default())).collect()
}

/// The tables with the example.
pub fn schema() -> Schema {
    let types = format!("{}@harbour_v1\n{}", parse::TYPES, lines("schema/types/harbour_v1.txt"));
    let resources = format!("{}\n{}", resources::TABLE, lines("schema/resources.txt"));
    parse::load(types.leak(), resources.leak())
}

#[test]
fn a_resource_is_lines_in_tables_and_no_rust() {
    let boats = super::schema().resource("harbour.example.io", "v1", "boats").expect("boats are served");
    let text =
        json!({"apiVersion": "harbour.example.io/v1", "kind": "Boat", "metadata": {"name": "b", "namespace": "n"},
        "spec": {"rented": true}})
        .to_string();
    let (mut boat, _) = decode::read(boats.ty, text.as_bytes(), Mode::Strict).expect("a boat");
    defaults::apply(boats.ty, &mut boat);
    assert_eq!(boat["spec"]["berths"], 1);
    let faults = |boat: &Value| validate::create(boats, boat).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(faults(&boat), ["spec.owner: Required value"]);
    boat["spec"]["owner"] = "o".into();
    assert!(faults(&boat).is_empty());
    boat["spec"]["berths"] = 0.into();
    assert_eq!(faults(&boat), ["spec.berths: Invalid value: 0: a boat needs a berth"]);
    assert_eq!(protobuf::decode_object(&protobuf::encode_object(boats, &boat)), Ok(boat.clone()));
    decode::read(boats.ty, br#"{"spec": {"sails": 1}}"#, Mode::Strict).expect_err("boats have no sails here");
    let list = discovery::resource_list("harbour.example.io", "v1").expect("a document");
    assert_eq!(list["resources"][0]["shortNames"], json!(["bo"]));
    let document = openapi::document_at("apis/harbour.example.io/v1").expect("a document");
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["io.k8s.api.harbour.v1.BoatSpec"]["properties"]["berths"]["default"], 1);
    let printed =
        table::table(boats, [&boat].into_iter(), json!({}), table::Include::None, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(printed["rows"][0]["cells"][0], "b");
}
