//! Truncates large events: request and response bodies first, then the whole event.

use api::Value;

const NOTE: &str = "audit.k8s.io/truncated";

/// Truncation of large events.
#[derive(Clone, Copy, Debug, Default)]
pub struct TruncateConfig {
    /// Whether truncation is enabled.
    pub enabled: bool,
    /// Maximum event size in bytes.
    pub event: usize,
    /// Maximum batch size in bytes.
    pub batch: usize,
}

impl TruncateConfig {
    /// Returns the event within the size limit; `None` if that is impossible.
    pub fn truncate_event(&self, event: Value) -> Option<Value> {
        if !self.enabled || event_size(&event) <= self.event {
            return Some(event);
        }
        let mut event = event;
        if let Some(fields) = event.as_object_mut() {
            fields.remove("requestObject");
            fields.remove("responseObject");
            event["annotations"][NOTE] = "true".into();
        }
        (event_size(&event) <= self.event).then_some(event)
    }

    /// Splits a batch at the size limit.
    pub fn split_batch<T: AsRef<Value>>(&self, events: Vec<T>) -> Vec<Vec<T>> {
        if !self.enabled {
            return vec![events];
        }
        let mut batches: Vec<(usize, Vec<T>)> = Vec::new();
        for event in events {
            let size = event_size(event.as_ref());
            match batches.last_mut() {
                Some((total, batch)) if *total + size <= self.batch => {
                    *total += size;
                    batch.push(event);
                }
                _ => batches.push((size, vec![event])),
            }
        }
        batches.into_iter().map(|(_, batch)| batch).collect()
    }
}

fn event_size(event: &Value) -> usize {
    event.to_string().len()
}
