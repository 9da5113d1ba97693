//! The steps of a start or a stop, told as they happen: to the terminal, or as JSON lines to the process that waits for
//! the background one.

use std::{
    future::Future,
    io::{self, Write},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use crate::screen::StepScreen;

/// A line from the background process to the foreground one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "report", rename_all = "camelCase")]
pub enum StepReport {
    /// A step began.
    Began {
        /// Its name.
        step: String,
    },
    /// A step is done.
    Done {
        /// Its name.
        step: String,
        /// The outcome.
        detail: String,
        /// The duration.
        seconds: f64,
    },
    /// A step that began had nothing to do.
    Skipped,
    /// Something that works less well than it should.
    Warning {
        /// The warning.
        text: String,
    },
    /// All steps are done.
    Failed {
        /// The step that failed.
        step: Option<String>,
        /// The error.
        error: String,
    },
    /// Everything is up.
    Ready,
}

impl StepReport {
    /// Shows it to the user.
    pub fn show(&self, screen: &StepScreen) {
        match self {
            StepReport::Began { step } => screen.began(step),
            StepReport::Done { step, detail, seconds } => screen.done(step, detail, *seconds),
            StepReport::Skipped => screen.forget(),
            StepReport::Warning { text } => screen.warning(text),
            StepReport::Failed { step: Some(step), .. } => screen.failed(step),
            StepReport::Failed { step: None, .. } | StepReport::Ready => {}
        }
    }
}

/// Reports steps to the terminal or to the foreground process.
pub struct StepReporter {
    /// `None`: the parent process, through standard output.
    screen: Option<StepScreen>,
    running: Option<(String, Instant)>,
    started: Instant,
}

impl StepReporter {
    /// Tells the user.
    pub fn on_terminal() -> Self {
        Self { screen: Some(StepScreen::new()), running: None, started: Instant::now() }
    }

    /// Tells the parent process.
    pub fn to_parent() -> Self {
        Self { screen: None, ..Self::on_terminal() }
    }

    /// Does one step; `work` returns what it made and a few words about it.
    pub async fn step<T>(
        &mut self,
        name: &str,
        work: impl Future<Output = anyhow::Result<(T, String)>>,
    ) -> anyhow::Result<T> {
        self.begin(name);
        let (made, detail) = work.await?;
        self.done(&detail);
        Ok(made)
    }

    /// A step begins.
    pub fn begin(&mut self, name: &str) {
        self.running = Some((name.to_owned(), Instant::now()));
        self.tell(StepReport::Began { step: name.to_owned() });
    }

    /// The step that began last is done.
    pub fn done(&mut self, detail: &str) {
        if let Some((step, began)) = self.running.take() {
            let seconds = began.elapsed().as_secs_f64();
            // On a terminal the step is shown there already.
            if self.screen.is_none() {
                tracing::info!(step, detail, seconds, "done");
            }
            self.tell(StepReport::Done { step, detail: detail.to_owned(), seconds });
        }
    }

    /// The step that began last had nothing to do.
    pub fn skip(&mut self) {
        self.running = None;
        self.tell(StepReport::Skipped);
    }

    /// Tells what works less well than it should.
    pub fn warn(&self, text: &str) {
        tracing::warn!("{text}");
        self.tell(StepReport::Warning { text: text.to_owned() });
    }

    /// All steps are done.
    pub fn failed(&mut self, error: &anyhow::Error) {
        let step = self.running.take().map(|(step, _)| step);
        tracing::error!(step, error = format!("{error:#}"), "failed");
        self.tell(StepReport::Failed { step, error: format!("{error:#}") });
    }

    /// Everything is up.
    pub fn ready(&self) {
        self.tell(StepReport::Ready);
    }

    /// Since the first step.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn tell(&self, report: StepReport) {
        match &self.screen {
            Some(screen) => report.show(screen),
            None => {
                let mut line = serde_json::to_vec(&report).unwrap_or_default();
                line.push(b'\n');
                // The parent may have been interrupted; the cluster starts all the same.
                let _ = io::stdout().lock().write_all(&line);
            }
        }
    }
}
