//! Random objects of every type survive encoding and decoding in JSON, YAML and protobuf.

use crate::generate;
use fastrand::Rng;
use ferry_api::{
    decode::{self, FieldValidation},
    protobuf,
    schema::schema,
    yaml,
};

#[test]
fn every_type_round_trips_in_every_format() {
    let mut rng = Rng::with_seed(4);
    for (id, ty) in schema().types() {
        for round in 0..6 {
            let object = generate::random_object(&mut rng, id);
            let text = object.to_string();
            let (read, warnings) = decode::decode_json(id, text.as_bytes(), FieldValidation::Warn).unwrap();
            assert_eq!(read, object, "{} as JSON, round {round}", ty.name);
            assert!(warnings.is_empty(), "{}: {warnings:?}", ty.name);

            let text = yaml::write_document(&object);
            let read = yaml::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}\n{text}", ty.name));
            assert_eq!(read.value, object, "{} as YAML, round {round}:\n{text}", ty.name);

            if ty.fields.iter().all(|field| field.number.is_some()) {
                let bytes = protobuf::encode_as(id, &object);
                assert_eq!(protobuf::decode_as(id, &bytes).unwrap(), object, "{} as protobuf, round {round}", ty.name);
            }
        }
    }
}

#[test]
fn every_resource_round_trips_in_an_envelope() {
    let mut rng = Rng::with_seed(5);
    for resource in schema().resources() {
        let mut object = generate::random_object(&mut rng, resource.ty);
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        let bytes = protobuf::encode_object(resource, &object);
        assert_eq!(protobuf::decode_object(&bytes).unwrap(), object, "{}", resource.qualified_name());
        let (kind, watched) = protobuf::decode_watch_event(&protobuf::encode_watch_event("ADDED", &object)).unwrap();
        assert_eq!((kind.as_str(), watched), ("ADDED", object), "{}", resource.qualified_name());
    }
}
