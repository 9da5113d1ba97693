//! PreScore and Score: the sum of the plug-ins' normalized scores of each node.

use std::sync::Arc;

use super::{
    ExtensionPoint, Framework,
    class_results::ClassResults,
    cycle_state::CycleState,
    extension_points::{CycleContext, MAX_NODE_SCORE, Plugin},
    scores_by_class,
    status::Status,
};
use crate::views::node_info::NodeInfo;

fn score_failure(plugin: &dyn Plugin, point: &str, status: &Status) -> Status {
    Status::error(format!("running {point}: plugin {:?} failed with: {}", plugin.name(), status.message()))
}

impl Framework {
    /// Scores nodes, given with their positions: the sum of the plug-ins' normalized scores by weight. Scores that equal pods share are taken from
    /// `results`.
    pub fn run_scores(
        &self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        (nodes, positions): (&[Arc<NodeInfo>], &[usize]),
        results: &mut ClassResults,
    ) -> Result<Vec<i64>, Status> {
        self.run_pre_score(cycle, state, nodes)?;
        let shared = self.class_scores(cycle, state, (nodes, positions), results)?;
        let mut totals = vec![0; nodes.len()];
        let mut scores = vec![0; nodes.len()];
        let mut place = 0;
        for (index, plugin, weight) in &self.scores {
            let column = scores_by_class(plugin.as_ref()).then_some(place);
            place += usize::from(column.is_some());
            if state.skip_score.contains(*index) {
                continue;
            }
            match column {
                Some(column) => {
                    let column = shared.iter().skip(column).step_by(self.class_scores.max(1));
                    scores.iter_mut().zip(column).for_each(|(score, shared)| *score = *shared);
                    self.normalize_by(plugin.as_ref(), cycle, state, nodes, &mut scores)?;
                }
                None => self.score_by(plugin.as_ref(), cycle, state, nodes, &mut scores)?,
            }
            totals.iter_mut().zip(&scores).for_each(|(total, score)| *total += score * weight);
        }
        Ok(totals)
    }

    /// Returns the scores that equal pods share, before normalization, node by node.
    fn class_scores(
        &self,
        cycle: CycleContext<'_>,
        state: &CycleState,
        (nodes, positions): (&[Arc<NodeInfo>], &[usize]),
        results: &mut ClassResults,
    ) -> Result<Vec<i64>, Status> {
        let mut shared = Vec::with_capacity(nodes.len() * self.class_scores);
        if self.class_scores == 0 {
            return Ok(shared);
        }
        for (node, position) in nodes.iter().zip(positions) {
            let scores = results.scores(*position, node, |scores| {
                let plugins = self.scores.iter().filter(|(_, plugin, _)| scores_by_class(plugin.as_ref()));
                for ((_, plugin, _), place) in plugins.zip(scores.iter_mut()) {
                    if let Some(score) = plugin.as_score() {
                        *place = score
                            .score(cycle, state, node)
                            .map_err(|status| score_failure(plugin.as_ref(), "Score plugins", &status))?;
                    }
                }
                Ok(())
            })?;
            shared.extend_from_slice(scores);
        }
        Ok(shared)
    }

    /// Runs PreScore.
    pub fn run_pre_score(
        &self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        nodes: &[Arc<NodeInfo>],
    ) -> Result<(), Status> {
        for (index, plugin) in self.plugins(ExtensionPoint::PreScore) {
            let Some(pre_score) = plugin.as_pre_score() else { continue };
            let scores = pre_score.pre_score(cycle, state, nodes).map_err(|status| {
                Status::error(format!("running PreScore plugin {:?}: {}", plugin.name(), status.message()))
            })?;
            if !scores {
                state.skip_score.insert(*index);
            }
        }
        Ok(())
    }

    /// Returns the normalized scores of every plug-in that scores, without weights.
    pub fn plugin_scores(
        &self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        nodes: &[Arc<NodeInfo>],
    ) -> Result<Vec<(&'static str, Vec<i64>)>, Status> {
        self.run_pre_score(cycle, state, nodes)?;
        let enabled = self.scores.iter().filter(|(index, ..)| !state.skip_score.contains(*index));
        enabled
            .map(|(_, plugin, _)| {
                let mut scores = vec![0; nodes.len()];
                self.score_by(plugin.as_ref(), cycle, state, nodes, &mut scores)?;
                Ok((plugin.name(), scores))
            })
            .collect()
    }

    fn score_by(
        &self,
        plugin: &dyn Plugin,
        cycle: CycleContext<'_>,
        state: &CycleState,
        nodes: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) -> Result<(), Status> {
        let Some(score) = plugin.as_score() else { return Ok(()) };
        for (node, entry) in nodes.iter().zip(scores.iter_mut()) {
            *entry =
                score.score(cycle, state, node).map_err(|status| score_failure(plugin, "Score plugins", &status))?;
        }
        self.normalize_by(plugin, cycle, state, nodes, scores)
    }

    fn normalize_by(
        &self,
        plugin: &dyn Plugin,
        cycle: CycleContext<'_>,
        state: &CycleState,
        nodes: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) -> Result<(), Status> {
        let Some(score) = plugin.as_score() else { return Ok(()) };
        let name = plugin.name();
        let normalized = score.normalize(cycle, state, nodes, scores);
        normalized.map_err(|status| score_failure(plugin, "Normalize on Score plugins", &status))?;
        match scores.iter().find(|score| !(0..=MAX_NODE_SCORE).contains(*score)) {
            None => Ok(()),
            Some(invalid) => Err(Status::error(format!(
                "applying score defaultWeights on Score plugins: plugin {name:?} returns an invalid score {invalid}, \
                 it should in the range of [0, {MAX_NODE_SCORE}] after normalizing"
            ))),
        }
    }
}
