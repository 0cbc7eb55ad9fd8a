//! The page as one file.

use crate::library::Library;
use terrace_report::view_page;

/// The page with all documents of a library in it. It shows what the served page shows, and loads nothing.
pub fn export(library: &Library) -> String {
    let mut catalog = library.catalog().clone();
    let mut documents = String::new();
    for set in library.catalog().sets.clone() {
        match library.document(set.id).expect("a set of the catalog has a number") {
            Ok(text) => {
                let separator = if documents.is_empty() { "" } else { "," };
                documents += &format!("{separator}\"{}\":{}", set.id, without_blanks(&text));
            }
            // The set has changed since it was listed.
            Err(message) => {
                catalog.sets.retain(|other| other.id != set.id);
                catalog.problems.push(crate::set::Problem { path: set.path, message });
            }
        }
    }
    let title = match catalog.roots.as_slice() {
        [root] => format!("Results in {root}"),
        roots => format!("Results in {} places", roots.len()),
    };
    let catalog = serde_json::to_string(&catalog).expect("plain data with string keys always serializes");
    let data = format!("{{\"catalog\":{catalog},\"documents\":{{{documents}}}}}");
    view_page::exported(&title, &data)
}

/// JSON without the blanks between its parts. Keys keep their order, and numbers their digits.
fn without_blanks(json: &str) -> String {
    let mut short = String::with_capacity(json.len());
    let (mut is_text, mut is_escaped) = (false, false);
    for letter in json.chars() {
        if is_text {
            is_text = is_escaped || letter != '"';
            is_escaped = !is_escaped && letter == '\\';
        } else if matches!(letter, ' ' | '\n' | '\r' | '\t') {
            continue;
        } else {
            is_text = letter == '"';
        }
        short.push(letter);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_go_and_texts_stay() {
        let json = "{ \"a b\": [1.50, \"x \\\" y \\\\\", null ],\n\t\"z\":\"  \" }";
        assert_eq!(without_blanks(json), "{\"a b\":[1.50,\"x \\\" y \\\\\",null],\"z\":\"  \"}");
    }
}
