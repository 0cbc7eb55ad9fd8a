//! Requests to a cache of objects as comma-separated lines, the first of which names the columns.
//!
//! | column | called |
//! |---|---|
//! | object | `obj_id`, `object`, `key`, `id` or `lbn`, the first of these that there is; any text |
//! | bytes | `obj_size`, `object_size`, `size` or `bytes` |
//! | operation, if any | `op`, `operation` or `type`; memcached's that store, `put`, `write`, `w` and SCSI's `2a` write, those that delete access nothing, others read |
//!
//! Fields may be quoted, as RFC 4180 has it. Other columns are passed over. What a request becomes: [`super::objects`].

use super::Parser;
use super::builder::ImportBuilder;
use super::input::{Input, beginning};
use super::objects::Objects;
use crate::SourceError;
use std::borrow::Cow;

const OBJECT: [&str; 5] = ["obj_id", "object", "key", "id", "lbn"];
const BYTES: [&str; 4] = ["obj_size", "object_size", "size", "bytes"];
const OPERATION: [&str; 3] = ["op", "operation", "type"];
const WRITES: [&str; 12] =
    ["set", "put", "add", "replace", "cas", "append", "prepend", "incr", "decr", "write", "w", "2a"];
const DELETES: [&str; 3] = ["delete", "del", "remove"];

/// Parses lines of requests.
#[derive(Debug, Default)]
pub(super) struct Csv {
    columns: Option<Columns>,
    objects: Objects<Box<[u8]>>,
}

#[derive(Clone, Copy, Debug)]
struct Columns {
    object: usize,
    bytes: usize,
    operation: Option<usize>,
}

/// The fields of a line, without the quotes of those that have them.
struct Fields<'a> {
    left: Option<&'a [u8]>,
}

fn fields(line: &[u8]) -> Fields<'_> {
    Fields { left: Some(line) }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Cow<'a, [u8]>> {
        let line = self.left?;
        let quoted = line.trim_ascii_start().strip_prefix(b"\"");
        // The quote that no quote follows ends a quoted field; a comma within it is its own.
        let end = quoted.and_then(|text| {
            let mut at = 0;
            loop {
                at += text[at..].iter().position(|&byte| byte == b'"')?;
                if text.get(at + 1) != Some(&b'"') {
                    return Some(at);
                }
                at += 2;
            }
        });
        let (field, rest) = match (quoted, end) {
            (Some(text), Some(end)) => (Some(&text[..end]), &text[end + 1..]),
            _ => (None, line),
        };
        let comma = rest.iter().position(|&byte| byte == b',');
        self.left = comma.map(|at| &rest[at + 1..]);
        let plain = rest[..comma.unwrap_or(rest.len())].trim_ascii();
        Some(match field {
            Some(text) if text.contains(&b'"') => {
                // The first of two quotes stands for both.
                let mut stands = false;
                let kept = text.iter().copied().filter(|&byte| {
                    stands = byte == b'"' && !stands;
                    byte != b'"' || stands
                });
                Cow::Owned(kept.collect())
            }
            Some(text) => Cow::Borrowed(text),
            None => Cow::Borrowed(plain),
        })
    }
}

/// Which columns a first line names.
fn columns(line: &[u8]) -> Option<Columns> {
    let names: Vec<String> = fields(line)
        .map(|name| String::from_utf8_lossy(&name).to_ascii_lowercase().replace('-', "_"))
        .collect();
    // The earlier name of a list wins, as a trace may have a key and an identity.
    let find = |of: &[&str]| of.iter().find_map(|name| names.iter().position(|found| found == name));
    Some(Columns { object: find(&OBJECT)?, bytes: find(&BYTES)?, operation: find(&OPERATION) })
}

impl Csv {
    /// Whether a line names the columns of requests.
    pub(super) fn is_line(line: &[u8]) -> bool {
        columns(line).is_some()
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Parser for Csv {
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError> {
        if self.objects.step(out).map_err(|what| input.in_line(&what))? {
            return Ok(true);
        }
        let Some(line) = input.line()? else { return Ok(false) };
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(true);
        }
        let Some(Columns { object, bytes, operation }) = self.columns else {
            self.columns = columns(line);
            return match self.columns {
                Some(_) => Ok(true),
                None => {
                    Err(input
                        .in_line("expected the names of the columns, `obj_id` and `obj_size` among them"))
                }
            };
        };
        let at = |column: usize| fields(line).nth(column);
        let found = at(object).filter(|text| !text.is_empty()).zip(at(bytes).and_then(|text| number(&text)));
        let Some((object, bytes)) = found else {
            let found = beginning(line);
            return Err(
                input.in_line(&format!("expected an object and its size in bytes, found \"{found}\""))
            );
        };
        let operation = operation.and_then(at);
        let is = |words: &[&str]| {
            let text = operation.as_ref();
            text.is_some_and(|text| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes())))
        };
        if !is(&DELETES) {
            self.objects.request(object.into_owned().into(), bytes, is(&WRITES));
        }
        Ok(true)
    }
}
