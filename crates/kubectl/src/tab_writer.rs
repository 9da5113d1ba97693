//! Alignment of cells into columns, as Go's `text/tabwriter` does: a column is a block of consecutive lines that have a cell there.

/// Aligns tab-separated cells.
#[derive(Clone, Debug)]
pub struct TabWriter {
    min_width: usize,
    padding: usize,
    /// Whether later blocks keep the widths of earlier ones.
    remember: bool,
    remembered: Vec<usize>,
    text: String,
}

impl TabWriter {
    /// The writer of tables.
    pub fn for_tables() -> Self {
        TabWriter { min_width: 6, padding: 3, remember: true, remembered: Vec::new(), text: String::new() }
    }

    /// A writer with a minimal cell width and a padding.
    pub fn new(min_width: usize, padding: usize) -> Self {
        TabWriter { min_width, padding, remember: false, remembered: Vec::new(), text: String::new() }
    }

    /// Adds text; cells end with a tab, lines with a line break.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds a line of cells.
    pub fn push_row<S: AsRef<str>>(&mut self, cells: &[S]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        self.text.push_str(&cells.join("\t"));
        self.text.push('\n');
    }

    /// Forgets the widths of earlier blocks.
    pub fn reset_widths(&mut self) {
        self.remembered.clear();
    }

    /// Returns the aligned text since the last call.
    pub fn flush(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return text;
        }
        let ends_line = text.ends_with('\n');
        let body = text.strip_suffix('\n').unwrap_or(&text);
        let lines: Vec<Vec<&str>> = body.split('\n').map(|line| line.split('\t').collect()).collect();
        let mut out = String::with_capacity(text.len() * 2);
        self.format_block(&lines, &mut Vec::new(), &mut out);
        if !ends_line {
            out.pop();
        }
        out
    }

    fn format_block(&mut self, lines: &[Vec<&str>], widths: &mut Vec<usize>, out: &mut String) {
        let column = widths.len();
        let mut written = 0;
        let mut at = 0;
        while at < lines.len() {
            if column + 1 >= lines[at].len() {
                at += 1;
                continue;
            }
            write_lines(&lines[written..at], widths, out);
            let start = at;
            let mut width = self.min_width;
            while at < lines.len() && column + 1 < lines[at].len() {
                width = width.max(lines[at][column].chars().count() + self.padding);
                at += 1;
            }
            width = self.remember_width(column, width);
            widths.push(width);
            self.format_block(&lines[start..at], widths, out);
            widths.pop();
            written = at;
        }
        write_lines(&lines[written..], widths, out);
    }

    fn remember_width(&mut self, column: usize, width: usize) -> usize {
        if !self.remember {
            return width;
        }
        if self.remembered.len() <= column {
            self.remembered.resize(column + 1, 0);
        }
        self.remembered[column] = self.remembered[column].max(width);
        self.remembered[column]
    }
}

fn write_lines(lines: &[Vec<&str>], widths: &[usize], out: &mut String) {
    for line in lines {
        for (at, cell) in line.iter().enumerate() {
            out.push_str(cell);
            if let Some(width) = widths.get(at).filter(|_| at + 1 < line.len()) {
                out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_within_blocks() {
        let mut writer = TabWriter::for_tables();
        writer.push("NAME\tAGE\na\t1s\nlong-name\t2s\n");
        assert_eq!(writer.flush(), "NAME        AGE\na           1s\nlong-name   2s\n");
        let mut writer = TabWriter::new(0, 2);
        writer.push("a:\tb\nx\ncc:\td\n");
        assert_eq!(writer.flush(), "a:  b\nx\ncc:  d\n");
    }
}
