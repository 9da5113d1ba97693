//! Error messages about malformed bodies, compared with kube-apiserver 1.36.4.
//!
//! `messages.jsonl` has one body per line: resource, format, body, and message.

use ferry_api::{
    decode::FieldValidation,
    request_body::{self, BodyFormat},
    schema::{Resource, schema},
    yaml,
};

fn resource(name: &str) -> &'static Resource {
    let version = if name == "horizontalpodautoscalers" { "v2" } else { "v1" };
    schema().resources().iter().find(|row| row.name == name && row.version == version).expect("a resource")
}

fn decode_message(name: &str, format: BodyFormat, body: &[u8]) -> String {
    match request_body::decode_body(resource(name), format, body, FieldValidation::Strict) {
        Ok((object, _)) => format!("read: {object}"),
        Err(status) => status.message,
    }
}

#[test]
fn malformed_bodies_have_upstreams_errors() {
    let rows: Vec<[String; 4]> =
        include_str!("../messages.jsonl").lines().map(|line| serde_json::from_str(line).expect("four texts")).collect();
    assert!(rows.len() > 100);
    for [name, format, body, want] in &rows {
        let format = if format == "yaml" { BodyFormat::Yaml } else { BodyFormat::Json };
        assert_eq!(decode_message(name, format, body.as_bytes()), *want, "{body}");
    }
}

/// `yaml_faults.jsonl` has one text per line with the error of Go's library; `ok` for none.
#[test]
fn malformed_yaml_has_gos_errors() {
    for line in include_str!("../yaml_faults.jsonl").lines() {
        let [body, want]: [String; 2] = serde_json::from_str(line).expect("two texts");
        let got = yaml::parse(body.as_bytes()).map_or_else(|error| error.to_string(), |_| "ok".to_owned());
        assert_eq!(got, want, "{body:?}");
    }
}

#[test]
fn field_validation_decides_about_unknown_fields() {
    let json = br#"{"kind":"ConfigMap","apiVersion":"v1","zz":{"a":1,"a":2},"metadata":{"name":"d","nmae":1,"name":"e"},"aa":0}"#;
    let yaml = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: e}\nzz: 1\ndata: {a: b, a: c}\naa: 1\n";
    let unknown = |path: &str| format!("unknown field {path:?}");
    let of_json =
        [unknown("zz"), unknown("metadata.nmae"), "duplicate field \"metadata.name\"".to_owned(), unknown("aa")];
    let of_yaml = ["line 5: key \"a\" already set in map".to_owned(), unknown("aa"), unknown("zz")];
    let cases = [(BodyFormat::Json, &json[..], &of_json[..]), (BodyFormat::Yaml, &yaml[..], &of_yaml[..])];
    for (format, body, want) in cases {
        let read = |mode| request_body::decode_body(resource("configmaps"), format, body, mode).expect("an object");
        let (object, warnings) = read(FieldValidation::Warn);
        assert_eq!(object["metadata"]["name"], "e");
        assert_eq!(warnings, want);
        assert_eq!(read(FieldValidation::Ignore), (object, Vec::new()));
    }
}

#[test]
fn invalid_utf8_and_deep_nesting_are_rejected() {
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): ";
    let json = "couldn't get version/kind; json parse error: ";
    let deep = [b'['; 10_001];
    let shown = "5b".repeat(30);
    let cases: [(BodyFormat, &[u8], String); 6] = [
        (BodyFormat::Json, b"\xff\xfe", format!("{json}invalid character 'ÿ' looking for beginning of value (fffe)")),
        (BodyFormat::Json, &deep, format!("{json}invalid character '[' exceeded max depth ({shown} ...)")),
        (BodyFormat::Yaml, b"a: \xff", "yaml: invalid leading UTF-8 octet (613a20ff)".to_owned()),
        (BodyFormat::Yaml, b"\xc3: 1", "yaml: invalid trailing UTF-8 octet (c33a2031)".to_owned()),
        (BodyFormat::Protobuf, b"", "empty data (<empty>)".to_owned()),
        (
            BodyFormat::Protobuf,
            b"k8s\0\x08\x01",
            "proto: wrong wireType = 0 for field TypeMeta (6b3873000801)".to_owned(),
        ),
    ];
    for (format, body, want) in cases {
        assert_eq!(decode_message("configmaps", format, body), format!("{unrecognized}{want}"));
    }
    let body = b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"data\":{\"a\":\"\\ud800 \xff\"}}";
    let (object, _) =
        request_body::decode_body(resource("configmaps"), BodyFormat::Json, body, FieldValidation::Strict)
            .expect("an object");
    assert_eq!(object["data"]["a"], "\u{fffd} \u{fffd}");
}

#[test]
fn malformed_protobuf_has_upstreams_errors() {
    let envelope = |kind: &[u8], raw: &[u8]| {
        let meta = [b"\x0a\x02v1\x12", &[kind.len() as u8][..], kind].concat();
        [b"k8s\0\x0a", &[meta.len() as u8][..], &meta, b"\x12", &[raw.len() as u8], raw].concat()
    };
    let cases: [(&[u8], &str); 9] = [
        (b"\xff", "unexpected EOF"),
        (b"\x0a\x05a", "unexpected EOF"),
        (b"\x08\x01", "proto: wrong wireType = 0 for field ObjectMeta"),
        (b"\x0a\x02\x08\x01", "proto: wrong wireType = 0 for field Name"),
        (&[0xff; 11], "proto: integer overflow"),
        (b"\x00", "proto: ConfigMap: illegal tag 0 (wire type 0)"),
        (b"\x0c", "proto: ConfigMap: wiretype end group for non-group"),
        (b"\x0f", "proto: wrong wireType = 7 for field ObjectMeta"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: negative length found during unmarshaling"),
    ];
    for (raw, want) in cases {
        let want = format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: {want}");
        assert_eq!(decode_message("configmaps", BodyFormat::Protobuf, &envelope(b"ConfigMap", raw)), want);
    }
    assert_eq!(
        decode_message("configmaps", BodyFormat::Protobuf, &envelope(b"Pod", b"")),
        "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion"
    );
}
