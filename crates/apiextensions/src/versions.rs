//! What apply asks about other versions of an object. A webhook may have to be asked, and apply does not wait. So a question
//! that has no answer yet is noted and answered with a guess, and what came of that is thrown away: once the questions are
//! answered, the change is made again. A question is asked once per request.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::{Value, apply, meta, schema::Resource, status::Status};

use crate::Definitions;

/// The questions of one request.
#[derive(Debug, Default)]
pub struct Conversions {
    questions: Mutex<Vec<Question>>,
}

#[derive(Debug)]
struct Question {
    object: Value,
    wanted: String,
    answer: Option<Result<Value, Status>>,
}

impl apply::VersionConverter for Conversions {
    fn convert_object(&self, object: &Value, api_version: &str) -> Option<Value> {
        let mut object = object.clone();
        // Owners are compared, not converted.
        if let Some(metadata) = object.get_mut("metadata") {
            meta::object_mut(metadata).remove("managedFields");
        }
        let renamed = |mut object: Value| {
            object["apiVersion"] = api_version.into();
            Some(object)
        };
        if is_nothing(&object) {
            return renamed(object);
        }
        let mut questions = self.lock();
        match questions.iter().find(|known| known.wanted == api_version && known.object == object) {
            Some(Question { answer: Some(answer), .. }) => answer.as_ref().ok().cloned(),
            Some(_) => renamed(object),
            None => {
                questions.push(Question { object: object.clone(), wanted: api_version.to_owned(), answer: None });
                renamed(object)
            }
        }
    }
}

impl Conversions {
    /// Makes a change, with answers to all that it asks.
    pub async fn settled<T>(&self, definitions: &Definitions, resource: &Resource, mut change: impl FnMut() -> T) -> T {
        loop {
            let outcome = change();
            let Some((wanted, open)) = self.open() else { return outcome };
            let objects = open.iter().map(|at| self.lock()[*at].object.clone()).collect();
            let mut answers = definitions.in_other_version(resource, objects, &wanted).await.map(Vec::into_iter);
            let mut questions = self.lock();
            for at in open {
                let answer = answers.as_mut().map(|answers| answers.next().unwrap_or_default());
                questions[at].answer = Some(answer.map_err(|why| why.clone()));
            }
        }
    }

    /// Why an object is not to be had in another version, if one was not.
    pub fn failure(&self) -> Option<Status> {
        self.lock().iter().find_map(|question| question.answer.as_ref()?.as_ref().err().cloned())
    }

    /// Questions about one version that have no answer yet.
    fn open(&self) -> Option<(String, Vec<usize>)> {
        let questions = self.lock();
        let wanted = questions.iter().find(|question| question.answer.is_none())?.wanted.clone();
        let open = |at: &usize| questions[*at].answer.is_none() && questions[*at].wanted == wanted;
        let open = (0..questions.len()).filter(open).collect();
        Some((wanted, open))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Question>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing but its kind is known of an object: there is nothing to convert.
fn is_nothing(object: &Value) -> bool {
    object.as_object().is_some_and(|fields| fields.keys().all(|field| field == "apiVersion" || field == "kind"))
}
