//! Sets of CPUs as the kernel writes them: `0-3,5`.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

/// A text is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of CPUs such as 0-3,5")]
pub struct InvalidCpuList(String);

impl CpuSet {
    /// The number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// The CPUs of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// The CPUs that `other` has not.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| !other.contains(*cpu)).collect()
    }

    /// Whether `other` has all of them.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = InvalidCpuList;

    fn from_str(text: &str) -> Result<Self, InvalidCpuList> {
        let invalid = || InvalidCpuList(text.to_owned());
        let number = |text: &str| text.parse::<u32>().map_err(|_| invalid());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            // The kernel has no more CPUs than that.
            if first > last || last >= 1 << 16 {
                return Err(invalid());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(formatter, "{separator}{first}")?,
                _ => write!(formatter, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_formatted() {
        let check = |text: &str, formatted: &str| {
            assert_eq!(text.parse::<CpuSet>().map(|set| set.to_string()).unwrap_or_default(), formatted, "{text}");
        };
        check("0-3,5", "0-3,5");
        check("5,1,0\n", "0-1,5");
        check("", "");
        check("3-1", "");
        check("a", "");
        check("0-4294967295", "");
    }
}
