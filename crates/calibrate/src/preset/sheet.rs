//! The text of a preset as it is written, with what the ledger will say of each key.

use crate::spread::Spread;
use std::fmt::Write;

/// How a key's value is written, and between which values a design may have it.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Unit; none for a plain count.
    pub unit: &'static str,
    /// Factor from what was measured to that unit.
    pub factor: f64,
    /// Decimals. Without any, the ends of a spread are rounded away from each other.
    pub decimals: usize,
    /// Least value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
}

impl Form {
    /// Times that were measured in nanoseconds.
    pub const NANOSECONDS: Form = Form { unit: " ns", factor: 1.0, decimals: 1, least: 0.0, most: 1e9 };
    /// Rates that were measured in bytes per second.
    pub const RATE: Form = Form { unit: " GB/s", factor: 1e-9, decimals: 2, least: 0.01, most: 1e6 };
    /// Clocks.
    pub const CLOCK: Form = Form { unit: " GHz", factor: 1e-9, decimals: 2, least: 0.01, most: 1000.0 };
    /// Whole cycles.
    pub const CYCLES: Form = Form { unit: " cycles", factor: 1.0, decimals: 0, least: 1.0, most: 1e6 };

    /// Sizes of caches, measured in bytes.
    pub const CAPACITY: Form =
        Form { unit: " KiB", factor: 1.0 / 1024.0, decimals: 0, least: 4.0, most: (4 << 20) as f64 };

    /// Counts up to so many.
    pub const fn count(most: f64) -> Form {
        Form { unit: "", factor: 1.0, decimals: 0, least: 1.0, most }
    }

    /// Value and ends of a spread.
    fn texts(&self, spread: Spread) -> [String; 3] {
        let Spread { median, low, high, .. } = spread.times(self.factor).clamp(self.least, self.most);
        let (low, high) = (low.min(median), high.max(median));
        let (low, high) = if self.decimals == 0 { (low.floor(), high.ceil()) } else { (low, high) };
        [median, low, high].map(|value| format!("{value:.*}{}", self.decimals, self.unit))
    }
}

/// A preset under way.
#[derive(Debug)]
pub struct Sheet {
    text: String,
    source: String,
    /// The preset that the file extends.
    base: String,
    cited: Vec<String>,
    assumed: Vec<String>,
    spread: Vec<String>,
}

impl Sheet {
    pub fn new(base: &str, date: &str) -> Sheet {
        Sheet {
            text: String::new(),
            source: format!("measured by terrace calibrate on {date}"),
            base: base.to_owned(),
            cited: Vec::new(),
            assumed: Vec::new(),
            spread: Vec::new(),
        }
    }

    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// A comment in lines of no more than 125 columns.
    pub fn comment(&mut self, comment: impl AsRef<str>) {
        let mut line = "#".to_owned();
        for word in comment.as_ref().split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > 125 {
                self.line(&line);
                line = "#".to_owned();
            }
            line.push(' ');
            line.push_str(word);
        }
        self.line(line);
    }

    /// The comment on something measured.
    pub fn measured(&mut self, spread: &Spread, factor: f64, what: &str) {
        let Spread { median, low, high, count } = spread.times(factor);
        self.comment(format!(
            "Measured: {median:.2} {what}; quartiles {low:.2} to {high:.2}, {count} repetitions."
        ));
    }

    /// A key of the table that was begun last, which is `table` in full.
    pub fn key(&mut self, table: &str, key: &str, value: Spread, form: &Form) {
        let [median, low, high] = form.texts(value);
        let quote = if form.unit.is_empty() { "" } else { "\"" };
        self.line(format!("{key} = {quote}{median}{quote}"));
        self.cite(&format!("{table}.{key}"), value.count);
        self.spread.push(format!("{table}.{key} = {low} .. {high}"));
    }

    /// A key that was measured but is no number with a spread.
    pub fn cite(&mut self, key: &str, repetitions: usize) {
        self.cited.push(format!("{key}: {}, {repetitions} repetitions", self.source));
    }

    /// A key that the kernel tells.
    pub fn reported(&mut self, key: &str) {
        self.cited.push(format!("{key}: as the kernel describes the machine"));
    }

    /// Keys that are the preset's, and why: also at the place where they would stand.
    pub fn assume(&mut self, keys: &str, why: &str) {
        self.comment(format!("Not measured, from {}: {keys} ({why}).", self.base));
        self.assumed.push(format!("{keys}: from {}; {why}", self.base));
    }

    /// The whole text, with the ledger.
    pub fn finish(mut self) -> String {
        self.line("[ledger]");
        self.comment(format!("What {} is known by does not hold for this machine.", self.base));
        self.line("anew = true");
        let lists = [
            ("", "cited", std::mem::take(&mut self.cited)),
            ("# Not measured, each with the reason.", "assumed", std::mem::take(&mut self.assumed)),
            ("# Quartiles of the repetitions.", "spread", std::mem::take(&mut self.spread)),
        ];
        for (comment, key, entries) in lists {
            if !comment.is_empty() {
                self.line(comment);
            }
            let entries = entries.iter().fold(String::new(), |mut all, entry| {
                // Writing to text cannot fail.
                let _ = writeln!(all, "    \"{}\",", entry.replace(['"', '\\'], "'"));
                all
            });
            self.line(format!("{key} = [\n{entries}]"));
        }
        self.text
    }
}
