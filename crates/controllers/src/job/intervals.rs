//! Sets of completion indexes as ordered intervals, in the notation of `status.completedIndexes` (`0-2,5`).

use std::fmt;

/// An inclusive range of indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexInterval {
    first: i64,
    last: i64,
}

/// Ordered intervals that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexIntervals(Vec<IndexInterval>);

impl IndexIntervals {
    /// Parses the notation, leaving out corrupted intervals and indexes from `completions` on.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let completions = i64::from(completions);
        let mut result = Self::default();
        for interval in text.split(',').filter(|_| !text.is_empty()) {
            let mut limits = interval.split('-');
            let Some(first) = limits.next().and_then(|first| first.parse::<i64>().ok()) else { continue };
            if first >= completions {
                break;
            }
            let last = match limits.next().map(str::parse::<i64>) {
                None => first,
                Some(Ok(last)) => last.min(completions - 1),
                Some(Err(_)) => continue,
            };
            match result.0.last_mut() {
                Some(previous) if previous.last == first - 1 => previous.last = last,
                _ => result.0.push(IndexInterval { first, last }),
            }
        }
        result
    }

    /// Returns the union with single indexes.
    pub(super) fn with_indexes(&self, indexes: impl IntoIterator<Item = i64>) -> Self {
        self.union(indexes.into_iter().map(|index| IndexInterval { first: index, last: index }))
    }

    /// Returns the union of both sets.
    pub(super) fn merge(&self, other: &Self) -> Self {
        self.union(other.0.iter().copied())
    }

    fn union(&self, others: impl Iterator<Item = IndexInterval>) -> Self {
        let mut all: Vec<IndexInterval> = self.0.iter().copied().chain(others).collect();
        all.sort_by_key(|interval| interval.first);
        let mut merged: Vec<IndexInterval> = Vec::new();
        for interval in all {
            match merged.last_mut() {
                Some(previous) if interval.first <= previous.last + 1 => {
                    previous.last = previous.last.max(interval.last);
                }
                _ => merged.push(interval),
            }
        }
        Self(merged)
    }

    /// Returns the number of indexes.
    pub(super) fn total(&self) -> i64 {
        self.0.iter().map(|interval| interval.last - interval.first + 1).sum()
    }

    /// Whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains the index.
    pub(super) fn contains(&self, index: i64) -> bool {
        let at = self.0.partition_point(|interval| interval.last < index);
        self.0.get(at).is_some_and(|interval| interval.first <= index)
    }

    /// Returns the number of indexes that both sets contain.
    pub(super) fn overlap(&self, other: &Self) -> i64 {
        let (mut at, mut other_at, mut common) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(at), other.0.get(other_at)) {
            common += (a.last.min(b.last) - a.first.max(b.first) + 1).max(0);
            at += usize::from(a.last <= b.last);
            other_at += usize::from(b.last <= a.last);
        }
        common
    }

    /// Returns the first `count` indexes below `completions` that are not in the set.
    pub(super) fn first_missing(&self, count: usize, completions: i32) -> Vec<i64> {
        let (mut missing, mut candidate) = (Vec::new(), 0);
        for interval in &self.0 {
            missing.extend((candidate..interval.first.min(completions.into())).take(count - missing.len()));
            candidate = candidate.max(interval.last + 1);
        }
        missing.extend((candidate..completions.into()).take(count - missing.len()));
        missing
    }
}

impl fmt::Display for IndexIntervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, IndexInterval { first, last }) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation_round_trips_and_is_bounded_by_completions() {
        let check = |text: &str, completions, expected: &str, total| {
            let parsed = IndexIntervals::parse(text, completions);
            assert_eq!((parsed.to_string().as_str(), parsed.total()), (expected, total), "{text}");
        };
        check("", 5, "", 0);
        check("0", 5, "0", 1);
        check("0,1", 5, "0,1", 2);
        check("0,1,2", 5, "0-2", 3);
        check("0-2,4", 5, "0-2,4", 4);
        check("0-9", 5, "0-4", 5);
        check("1,7-9", 5, "1", 1);
        check("x,2,3-y,4", 5, "2,4", 2);
    }

    #[test]
    fn sets_are_merged_and_compared() {
        let set = |text| IndexIntervals::parse(text, 100);
        assert_eq!(set("1,5-7").with_indexes([0, 2, 8]).to_string(), "0-2,5-8");
        assert_eq!(set("1-3").merge(&set("2-5,9")).to_string(), "1-5,9");
        assert_eq!(set("0-3,6").overlap(&set("2-6")), 3);
        assert!(set("1-3").contains(2) && !set("1-3").contains(4) && !set("").contains(0));
    }

    #[test]
    fn first_missing_indexes_are_found() {
        let check = |text, count, completions, expected: &[i64]| {
            assert_eq!(IndexIntervals::parse(text, 100).first_missing(count, completions), expected);
        };
        check("", 2, 4, &[0, 1]);
        check("0,2-3", 3, 6, &[1, 4, 5]);
        check("0-5", 3, 4, &[]);
        check("9", 3, 2, &[0, 1]);
        check("1", 1, 4, &[0]);
    }
}
