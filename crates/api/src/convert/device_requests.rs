//! Conversion of ResourceClaims and ResourceSlices: `v1beta1` inlines exact requests and nests device fields under
//! `basic`.

use crate::{Map, Value, meta};

/// The fields of an exact device request.
pub(crate) const EXACT_REQUEST_FIELDS: &[&str] =
    &["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

/// Converts from `v1beta1` to later versions.
pub(super) fn from_flat_requests(object: &mut Map) {
    for_each_request(object, |request| {
        let exact: Map = EXACT_REQUEST_FIELDS
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), request.remove(*field)?)))
            .collect();
        if !exact.is_empty() {
            request.insert("exactly".into(), Value::Object(exact));
        }
    });
    for_each_device(object, |device| {
        if let Some(Value::Object(basic)) = device.remove("basic") {
            device.extend(basic);
        }
    });
}

/// Converts from later versions to `v1beta1`.
pub(super) fn to_flat_requests(object: &mut Map) {
    for_each_request(object, |request| {
        if let Some(Value::Object(exact)) = request.remove("exactly") {
            request.extend(exact);
        }
    });
    for_each_device(object, |device| {
        let name = device.remove("name");
        let basic = std::mem::take(device);
        device.extend(name.map(|name| ("name".to_owned(), name)));
        device.insert("basic".into(), Value::Object(basic));
    });
}

/// Calls `change` for the device requests of a claim or claim template.
fn for_each_request(object: &mut Map, change: impl Fn(&mut Map)) {
    let Some(spec) = object.get_mut("spec") else { return };
    for path in ["/devices/requests", "/spec/devices/requests"] {
        let list = spec.pointer_mut(path).and_then(Value::as_array_mut);
        list.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&change);
    }
}

/// Calls `change` for the devices of a slice.
fn for_each_device(object: &mut Map, change: impl Fn(&mut Map)) {
    let is_slice = object.get("kind").and_then(Value::as_str) == Some("ResourceSlice");
    let Some(spec) = object.get_mut("spec").filter(|_| is_slice) else { return };
    let list = meta::object_mut(spec).get_mut("devices").and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut).for_each(change);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{convert, schema::schema};

    #[test]
    fn claims_and_slices_convert_between_versions() {
        let of = |version: &str, name: &str| schema().resource("resource.k8s.io", version, name).unwrap();
        let claim = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim",
            "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}]}}});
        let new = convert::convert_to(of("v1", "resourceclaims"), claim.clone());
        assert_eq!(new["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], "c");
        let back = convert::convert_to(of("v1beta1", "resourceclaims"), new);
        assert_eq!(back["spec"]["devices"]["requests"], claim["spec"]["devices"]["requests"]);
        let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "a", "attributes": {"x": {"int": 1}}}]}});
        let old = convert::convert_to(of("v1beta1", "resourceslices"), slice.clone());
        assert_eq!(old["spec"]["devices"][0]["basic"]["attributes"]["x"]["int"], 1);
        let back = convert::convert_to(of("v1", "resourceslices"), old);
        assert_eq!(back["spec"]["devices"], slice["spec"]["devices"]);
    }
}
