//! The difference of two structs as upstream tells it: lines of its internal JSON, with three lines around every change.

use super::render;
use crate::Value;

const CONTEXT: usize = 3;

/// One step of turning the old lines into the new.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Keep(usize, usize),
    Remove(usize),
    Add(usize),
}

/// What changed between two values of a type.
pub(super) fn of(ty: &str, old: &Value, new: &Value) -> String {
    let (old, new) = (render::pretty(&render::internal(ty, old)), render::pretty(&render::internal(ty, new)));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    unified(&old, &new)
}

fn unified(old: &[&str], new: &[&str]) -> String {
    let steps = steps(old, new);
    let changed: Vec<usize> = (0..steps.len()).filter(|at| !matches!(steps[*at], Step::Keep(..))).collect();
    let mut out = String::new();
    let mut rest = &changed[..];
    while let Some(first) = rest.first() {
        let near = |pair: &[usize]| pair[1] - pair[0] <= 2 * CONTEXT + 1;
        let length = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let from = first.saturating_sub(CONTEXT);
        let to = (rest[length - 1] + CONTEXT + 1).min(steps.len());
        hunk(&steps[from..to], old, new, &mut out);
        rest = &rest[length..];
    }
    out
}

fn hunk(steps: &[Step], old: &[&str], new: &[&str], out: &mut String) {
    let old_lines: Vec<usize> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Keep(at, _) | Step::Remove(at) => Some(*at),
            Step::Add(_) => None,
        })
        .collect();
    let new_lines: Vec<usize> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Keep(_, at) | Step::Add(at) => Some(*at),
            Step::Remove(_) => None,
        })
        .collect();
    out.push_str(&format!("@@ -{} +{} @@\n", range(&old_lines), range(&new_lines)));
    for step in steps {
        let (sign, text) = match step {
            Step::Keep(at, _) => (' ', old[*at]),
            Step::Remove(at) => ('-', old[*at]),
            Step::Add(at) => ('+', new[*at]),
        };
        out.push(sign);
        out.push_str(text);
        out.push('\n');
    }
}

fn range(lines: &[usize]) -> String {
    match lines {
        [] => "0,0".to_owned(),
        [one] => format!("{}", one + 1),
        [first, ..] => format!("{},{}", first + 1, lines.len()),
    }
}

/// The shortest way, removals before additions. Only what lies between the common ends is searched, and a change too large
/// to search is told as a whole.
fn steps(old: &[&str], new: &[&str]) -> Vec<Step> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut steps: Vec<Step> = (0..head).map(|at| Step::Keep(at, at)).collect();
    if a.len().saturating_mul(b.len()) > 1_000_000 {
        steps.extend((0..a.len()).map(|at| Step::Remove(head + at)));
        steps.extend((0..b.len()).map(|at| Step::Add(head + at)));
    } else {
        steps.extend(middle(a, b, head));
    }
    steps.extend((0..tail).map(|at| Step::Keep(old.len() - tail + at, new.len() - tail + at)));
    steps
}

fn middle(a: &[&str], b: &[&str], head: usize) -> Vec<Step> {
    let width = b.len() + 1;
    let mut common = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i * width + j] = if a[i] == b[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut steps) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            steps.push(Step::Keep(head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            steps.push(Step::Remove(head + i));
            i += 1;
        } else {
            steps.push(Step::Add(head + j));
            j += 1;
        }
    }
    steps
}
