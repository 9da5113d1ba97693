//! Labels and selectable fields of a document, extracted once and packed into a few bytes.
//!
//! A field is identified by its index in the catalog's list for the collection, so that only values are stored.

use super::SelectionBloomFilter;

/// The labels and declared fields of one document. Without either it takes no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields(Option<Box<[u8]>>);

impl SelectableFields {
    /// Packs labels, in the order of their names, and the values of the declared fields, in the catalog's order.
    pub fn new<'a>(
        labels: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
        fields: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut packed = Vec::new();
        let count = labels.len();
        push_number(&mut packed, count);
        for (name, value) in labels {
            push_text(&mut packed, name);
            push_text(&mut packed, value);
        }
        let mut any = count > 0;
        for value in fields {
            any |= !value.is_empty();
            push_text(&mut packed, value);
        }
        Self(any.then(|| packed.into()))
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let (count, mut rest) = self.split_label_count();
        for _ in 0..count {
            let (known, value) = (take_bytes(&mut rest)?, take_bytes(&mut rest)?);
            if known == name.as_bytes() {
                return std::str::from_utf8(value).ok();
            }
        }
        None
    }

    /// All labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let (count, mut rest) = self.split_label_count();
        (0..count).map_while(move |_| Some((take_text(&mut rest)?, take_text(&mut rest)?)))
    }

    /// The value of the field at this index of the catalog's list; empty if it has none.
    pub fn field(&self, place: usize) -> &str {
        let (count, mut rest) = self.split_label_count();
        let skipped = (0..count * 2 + place).try_for_each(|_| take_text(&mut rest).map(|_| ()));
        skipped.and_then(|()| take_text(&mut rest)).unwrap_or_default()
    }

    /// The filter of all labels and of the fields that have a value.
    pub fn bloom_filter(&self) -> SelectionBloomFilter {
        let (count, mut rest) = self.split_label_count();
        let mut filter = SelectionBloomFilter::default();
        for _ in 0..count {
            let (Some(name), Some(value)) = (take_text(&mut rest), take_text(&mut rest)) else { return filter };
            filter = filter.with_label(name, value);
        }
        let fields = (0..).map_while(|index| Some((index, take_text(&mut rest)?)));
        fields
            .filter(|(_, value)| !value.is_empty())
            .fold(filter, |filter, (index, value)| filter.with_field(index, value))
    }

    fn split_label_count(&self) -> (usize, &[u8]) {
        let mut rest = self.0.as_deref().unwrap_or_default();
        (take_number(&mut rest).unwrap_or(0), rest)
    }
}

fn push_text(packed: &mut Vec<u8>, text: &str) {
    push_number(packed, text.len());
    packed.extend_from_slice(text.as_bytes());
}

/// Seven bits a byte, the lowest first.
fn push_number(packed: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(rest)?).ok()
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_number(rest)?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_labels_and_fields_are_found() {
        let long = "x".repeat(300);
        let labels = [("app", "web"), ("empty", ""), ("long", long.as_str())];
        let marks = SelectableFields::new(labels.into_iter(), ["node-1", "", "Running"].into_iter());
        assert_eq!(labels.map(|(name, _)| marks.label(name)), [Some("web"), Some(""), Some(long.as_str())]);
        assert_eq!(marks.label("ap"), None);
        assert_eq!([0, 1, 2, 3].map(|place| marks.field(place)), ["node-1", "", "Running", ""]);
        assert!(marks.labels().eq(labels));
        let required = SelectionBloomFilter::default().with_label("empty", "").with_field(2, "Running");
        assert!(marks.bloom_filter().may_include(required));
    }

    #[test]
    fn empty_fields_take_no_memory() {
        let marks = SelectableFields::new([].into_iter(), ["", ""].into_iter());
        assert_eq!((&marks, marks.label("a"), marks.field(1)), (&SelectableFields(None), None, ""));
    }
}
