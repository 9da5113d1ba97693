//! CEL selectors of devices.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use cel::{Activation, CostTracker, Environment, MapKey, MapValue, NativeValue, Program, Type, Value};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceSelector};

use super::device_pools::NodeDevice;

/// The greatest cost of a selector.
const COST_LIMIT: u64 = 1_000_000;

/// A selector that cannot be evaluated, in upstream's words.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceSelectorError {
    /// The selector has no expression.
    #[error("CEL expression empty (unsupported selector type?)")]
    Empty,
    /// The expression does not compile.
    #[error("CEL compile error: {0}")]
    Compile(Arc<str>),
    /// The expression failed for a device.
    #[error("CEL runtime error: {0}")]
    Runtime(String),
    /// The selector at a place of the list failed.
    #[error("selector #{0}: {1}")]
    At(usize, Box<Self>),
}

/// Compiled selectors by expression; `None` if the expression is invalid.
#[derive(Default)]
pub struct SelectorCache {
    programs: Mutex<HashMap<String, Result<Arc<Program>, DeviceSelectorError>>>,
}

impl SelectorCache {
    /// Whether a device fulfils all selectors; the error names the place of the selector that fails.
    pub fn matches_all(
        &self,
        selectors: Option<&Vec<DeviceSelector>>,
        entry: &NodeDevice,
    ) -> Result<bool, DeviceSelectorError> {
        for (place, selector) in selectors.into_iter().flatten().enumerate() {
            let Some(cel) = &selector.cel else {
                return Err(DeviceSelectorError::At(place, DeviceSelectorError::Empty.into()));
            };
            let evaluate = |device: &Device| self.evaluate(&cel.expression, &entry.id.pool.driver, device);
            let matches = entry.match_expression(&cel.expression, evaluate);
            if !matches.map_err(|error| DeviceSelectorError::At(place, error.into()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Evaluates an expression about a device.
    pub fn evaluate(&self, expression: &str, driver: &str, device: &Device) -> Result<bool, DeviceSelectorError> {
        let program = self.program(expression)?;
        let mut activation = Activation::new();
        activation.bind_value(0, device_value(expression, driver, device));
        match program.run(&activation, &mut CostTracker::new(COST_LIMIT)) {
            Ok(Value::Bool(matches)) => Ok(matches),
            Ok(_) => Ok(false),
            Err(error) => Err(DeviceSelectorError::Runtime(error.to_string())),
        }
    }

    fn program(&self, expression: &str) -> Result<Arc<Program>, DeviceSelectorError> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(expression) {
            return program.clone();
        }
        let environment = Environment::new().with_variable("device", Type::Dyn);
        let program = match environment.compile(expression) {
            Ok(checked) => checked.plan_program().map(Arc::new).map_err(|error| error.to_string()),
            Err(issues) => Err(issues.to_string()),
        };
        let program = program.map_err(|error| DeviceSelectorError::Compile(error.into()));
        programs.insert(expression.to_owned(), program.clone());
        program
    }
}

fn map(entries: impl IntoIterator<Item = (String, Value<'static>)>) -> Value<'static> {
    let key = |text: String| match Value::from_owned_string(text) {
        Value::String(text) => MapKey::String(text),
        _ => MapKey::Null,
    };
    let entries: BTreeMap<MapKey<'static>, Value<'static>> =
        entries.into_iter().map(|(name, value)| (key(name), value)).collect();
    Value::Map(MapValue::Made(Arc::new(entries)))
}

/// The variable `device`. A domain that the expression names and the device lacks is an empty map.
fn device_value(expression: &str, driver: &str, device: &Device) -> Value<'static> {
    let mut attributes: BTreeMap<String, BTreeMap<String, Value<'static>>> = BTreeMap::new();
    let mut capacity = attributes.clone();
    for domain in named_domains(expression) {
        attributes.entry(domain.clone()).or_default();
        capacity.entry(domain).or_default();
    }
    for (name, attribute) in device.attributes.iter().flatten() {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        if let Some(value) = attribute_value(attribute) {
            attributes.entry(domain.into()).or_default().insert(id.into(), value);
        }
    }
    for (name, amount) in device.capacity.iter().flatten() {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        if let Some(quantity) = api::quantity::Quantity::parse(&amount.value.0) {
            let value = Value::Native(Arc::new(NativeValue::Quantity(quantity)));
            capacity.entry(domain.into()).or_default().insert(id.into(), value);
        }
    }
    let domains = |all: BTreeMap<String, BTreeMap<String, Value<'static>>>| {
        map(all.into_iter().map(|(domain, entries)| (domain, map(entries))))
    };
    let shared = Value::Bool(device.allow_multiple_allocations == Some(true));
    map([
        ("driver".to_owned(), Value::from_owned_string(driver)),
        ("attributes".to_owned(), domains(attributes)),
        ("capacity".to_owned(), domains(capacity)),
        ("allowMultipleAllocations".to_owned(), shared),
    ])
}

fn attribute_value(attribute: &DeviceAttribute) -> Option<Value<'static>> {
    if let Some(value) = attribute.bool {
        return Some(Value::Bool(value));
    }
    if let Some(value) = attribute.int {
        return Some(Value::Int(value));
    }
    if let Some(text) = &attribute.string {
        return Some(Value::from_owned_string(text.as_str()));
    }
    semver_value(attribute.version.as_ref()?)
}

/// Parses a semantic version by the function that expressions use.
fn semver_value(text: &str) -> Option<Value<'static>> {
    let checked = Environment::new().with_variable("text", Type::String).compile("semver(text)").ok()?;
    let program = checked.plan_program().ok()?;
    let mut activation = Activation::new();
    activation.bind_value(0, Value::from_owned_string(text));
    match program.run(&activation, &mut CostTracker::new(COST_LIMIT)) {
        Ok(Value::Native(version)) => Some(Value::Native(version)),
        _ => None,
    }
}

/// Returns the texts in brackets after `attributes` and `capacity`.
fn named_domains(expression: &str) -> Vec<String> {
    let mut domains = Vec::new();
    for name in ["attributes", "capacity"] {
        for (at, _) in expression.match_indices(name) {
            let rest = expression[at + name.len()..].trim_start();
            let Some(rest) = rest.strip_prefix('[').map(str::trim_start) else { continue };
            let Some(quote) = rest.chars().next().filter(|first| matches!(first, '"' | '\'')) else { continue };
            if let Some((domain, _)) = rest[1..].split_once(quote) {
                domains.push(domain.to_owned());
            }
        }
    }
    domains
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(expression: &str, expected: Result<bool, &str>) {
        let device: Device = serde_json::from_value(json!({"name": "d",
            "attributes": {"model": {"string": "x1"}, "other.com/v": {"version": "1.2.0"}, "cores": {"int": 4}},
            "capacity": {"memory": {"value": "8Gi"}}}))
        .unwrap();
        let result = SelectorCache::default().evaluate(expression, "gpu.com", &device);
        match (result, expected) {
            (Ok(matches), Ok(expected)) => assert_eq!(matches, expected, "{expression}"),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (result, _) => panic!("{expression}: {result:?}"),
        }
    }

    #[test]
    fn selectors_read_attributes_and_capacity() {
        check("device.driver == 'gpu.com' && device.attributes['gpu.com'].model == 'x1'", Ok(true));
        check("device.attributes['gpu.com'].cores > 4", Ok(false));
        check("device.capacity['gpu.com'].memory.compareTo(quantity('4Gi')) >= 0", Ok(true));
        check("device.attributes['other.com'].v.isGreaterThan(semver('1.1.0'))", Ok(true));
        check("'x' in device.attributes['absent.com']", Ok(false));
        check("device.attributes['absent.com'].x == 1", Err("CEL runtime error"));
        check("device.", Err("CEL compile error"));
    }
}
