//! Requests to a cache of objects as comma-separated lines, the first of which names the columns.
//!
//! | column | called |
//! |---|---|
//! | object | `obj_id`, `object`, `id`, `key` or `lbn`; any text |
//! | bytes | `obj_size`, `object_size`, `size` or `bytes` |
//! | operation, if any | `op` or `operation`; `set`, `put`, `add`, `replace`, `write`, `w` and SCSI's `2a` write, others read |
//!
//! Other columns are passed over. What a request becomes: [`super::objects`].

use super::Parser;
use super::builder::ImportBuilder;
use super::input::{Input, beginning};
use super::objects::Objects;
use crate::SourceError;

const OBJECT: [&str; 5] = ["obj_id", "object", "id", "key", "lbn"];
const BYTES: [&str; 4] = ["obj_size", "object_size", "size", "bytes"];
const OPERATION: [&str; 2] = ["op", "operation"];
const WRITES: [&str; 7] = ["set", "put", "add", "replace", "write", "w", "2a"];

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

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Which columns a first line names.
fn columns(line: &[u8]) -> Option<Columns> {
    let names: Vec<String> = fields(line)
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase().replace('-', "_"))
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
        let found = at(object).filter(|text| !text.is_empty()).zip(at(bytes).and_then(number));
        let Some((object, bytes)) = found else {
            let found = beginning(line);
            return Err(
                input.in_line(&format!("expected an object and its size in bytes, found \"{found}\""))
            );
        };
        let write = operation
            .and_then(at)
            .is_some_and(|text| WRITES.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes())));
        let object: Box<[u8]> = object.into();
        self.objects.request(object, bytes, write);
        Ok(true)
    }
}
