//! Jobs: generated selector and labels unless `manualSelector` is set.

use api::{Value, meta};
use apiserver_core::User;
use serde_json::json;

use super::Strategy;

/// The strategy of jobs.
pub struct JobStrategy;

impl Strategy for JobStrategy {
    fn prepare_create(&self, job: &mut Value, _: &User) {
        if job["spec"]["manualSelector"] == true {
            return;
        }
        let (uid, name) = (meta::uid(job).to_owned(), meta::name(job).to_owned());
        job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        let template = meta::field_mut(&mut job["spec"], "template");
        let metadata = meta::object_mut(template.entry("metadata").or_insert_with(|| json!({})));
        let labels = meta::object_mut(metadata.entry("labels").or_insert_with(|| json!({})));
        for (key, value) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            labels.insert(key.into(), value.clone().into());
        }
        // A job without labels gets those of its pod template, as upstream's defaulting does.
        let labels = labels.clone();
        let metadata = meta::metadata_mut(job);
        if metadata.get("labels").and_then(Value::as_object).is_none_or(|own| own.is_empty()) {
            metadata.insert("labels".into(), labels.into());
        }
    }
}
