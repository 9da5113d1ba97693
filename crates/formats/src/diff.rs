//! Unified diffs as upstream's library writes them: lines, with three lines of context around every change.

use std::{collections::HashMap, ops::Range};

const CONTEXT: usize = 3;

/// An edit operation that turns old lines into new ones.
#[derive(Clone, Copy, PartialEq)]
enum EditOperation {
    Keep(usize, usize),
    Remove(usize),
    Add(usize),
}

/// Returns the unified diff of two texts.
pub fn unified_diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let (old, new) = (&old[..], &new[..]);
    let steps = edit_operations(old, new);
    let changed: Vec<usize> = (0..steps.len()).filter(|at| !matches!(steps[*at], EditOperation::Keep(..))).collect();
    let mut out = String::new();
    let mut rest = &changed[..];
    while let Some(first) = rest.first() {
        let near = |pair: &[usize]| pair[1] - pair[0] <= 2 * CONTEXT + 1;
        let length = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let from = first.saturating_sub(CONTEXT);
        let to = (rest[length - 1] + CONTEXT + 1).min(steps.len());
        write_hunk(&steps[from..to], old, new, &mut out);
        rest = &rest[length..];
    }
    out
}

fn write_hunk(steps: &[EditOperation], old: &[&str], new: &[&str], out: &mut String) {
    let old_lines: Vec<usize> = steps
        .iter()
        .filter_map(|step| match step {
            EditOperation::Keep(at, _) | EditOperation::Remove(at) => Some(*at),
            EditOperation::Add(_) => None,
        })
        .collect();
    let new_lines: Vec<usize> = steps
        .iter()
        .filter_map(|step| match step {
            EditOperation::Keep(_, at) | EditOperation::Add(at) => Some(*at),
            EditOperation::Remove(_) => None,
        })
        .collect();
    out.push_str(&format!("@@ -{} +{} @@\n", format_line_range(&old_lines), format_line_range(&new_lines)));
    for step in steps {
        let (sign, text) = match step {
            EditOperation::Keep(at, _) => (' ', old[*at]),
            EditOperation::Remove(at) => ('-', old[*at]),
            EditOperation::Add(at) => ('+', new[*at]),
        };
        out.push(sign);
        out.push_str(text);
        out.push('\n');
    }
}

fn format_line_range(lines: &[usize]) -> String {
    match lines {
        [] => "0,0".to_owned(),
        [one] => format!("{}", one + 1),
        [first, ..] => format!("{},{}", first + 1, lines.len()),
    }
}

/// Line limit; longer texts are reported as replaced as a whole.
const MAX_LINES: usize = 5000;

/// Returns the edit operations between two texts by upstream's algorithm: the longest common run first, then the parts
/// before and after it.
fn edit_operations(old: &[&str], new: &[&str]) -> Vec<EditOperation> {
    let mut runs = Vec::new();
    if old.len().max(new.len()) <= MAX_LINES {
        let places = line_positions(new);
        let mut left = vec![(0..old.len(), 0..new.len())];
        while let Some((a, b)) = left.pop() {
            let (i, j, length) = longest_common_run(old, new, &places, &a, &b);
            if length > 0 {
                left.push((a.start..i, b.start..j));
                left.push((i + length..a.end, j + length..b.end));
                runs.push((i, j, length));
            }
        }
        runs.sort_unstable();
    }
    runs.push((old.len(), new.len(), 0));
    let (mut i, mut j, mut steps) = (0, 0, Vec::new());
    for (a, b, length) in runs {
        steps.extend((i..a).map(EditOperation::Remove));
        steps.extend((j..b).map(EditOperation::Add));
        steps.extend((0..length).map(|at| EditOperation::Keep(a + at, b + at)));
        (i, j) = (a + length, b + length);
    }
    steps
}

/// Indexes the positions of each line; in long texts, very frequent lines are ignored.
fn line_positions<'a>(lines: &[&'a str]) -> HashMap<&'a str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    if lines.len() >= 200 {
        places.retain(|_, at| at.len() <= lines.len() / 100 + 1);
    }
    places
}

fn longest_common_run(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    a: &Range<usize>,
    b: &Range<usize>,
) -> (usize, usize, usize) {
    let (mut i, mut j, mut length) = (a.start, b.start, 0);
    let mut runs: HashMap<usize, usize> = HashMap::new();
    for at in a.clone() {
        let mut next = HashMap::new();
        for place in places.get(old[at]).into_iter().flatten().filter(|place| b.contains(place)) {
            let run = place.checked_sub(1).and_then(|before| runs.get(&before)).copied().unwrap_or(0) + 1;
            next.insert(*place, run);
            if run > length {
                (i, j, length) = (at + 1 - run, place + 1 - run, run);
            }
        }
        runs = next;
    }
    while i > a.start && j > b.start && old[i - 1] == new[j - 1] {
        (i, j, length) = (i - 1, j - 1, length + 1);
    }
    while i + length < a.end && j + length < b.end && old[i + length] == new[j + length] {
        length += 1;
    }
    (i, j, length)
}

#[cfg(test)]
mod tests {
    use super::unified_diff;

    #[test]
    fn unified_diff_includes_context_lines() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm";
        let new = old.replace("b\n", "").replace("m", "m\nn");
        let want = "@@ -1,5 +1,4 @@\n a\n-b\n c\n d\n e\n@@ -11,3 +10,4 @@\n k\n l\n m\n+n\n";
        assert_eq!(unified_diff(old, &new), want);
        assert_eq!(unified_diff(old, old), "");
        assert_eq!(unified_diff("", "a"), "@@ -0,0 +1 @@\n+a\n");
    }
}
