//! The page of `terrace view`, which shows many sets of results: as files for a server, and as one file that opens offline.
//!
//! It is built from the same parts as the report's page (`page/src`, `page/src/view`).

use crate::html::{escape_json, escape_text, fill};

/// Built by `page/build.sh`, which also checks that it is up to date.
pub const SCRIPT: &str = include_str!("../page/dist/view.js");
/// Built by `page/build.sh`.
pub const STYLE: &str = include_str!("../page/dist/view.css");
/// The page of a server. It loads `view.js` and `view.css` from beside it, and has no script or style of its own, so that a
/// server may forbid all others.
pub const SERVED: &str = include_str!("../page/src/view/served.html");
const SKELETON: &str = include_str!("../page/src/view/skeleton.html");

/// The page as one file. `data` is a JSON document with the keys `catalog` and `documents`.
pub fn exported(title: &str, data: &str) -> String {
    fill(SKELETON, |name| match name {
        "title" => escape_text(title),
        "style" => STYLE.to_owned(),
        "data" => escape_json(data),
        "script" => SCRIPT.to_owned(),
        other => unreachable!("unknown placeholder {other} in the skeleton"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_data() {
        let hostile = "</script><script>alert(1)</script><!--{{script}}";
        let data = serde_json::json!({ "catalog": { "title": hostile } }).to_string();
        let page = exported(hostile, &data);
        assert!(!page.contains("<script>alert") && !page.contains("alert(1)</script>"));
        let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
        let end = start + page[start..].find("</script>").unwrap();
        let payload: serde_json::Value = serde_json::from_str(&page[start..end]).unwrap();
        assert_eq!(payload["catalog"]["title"], hostile);
    }

    #[test]
    fn no_file_of_it_asks_another_host_for_anything() {
        assert!(!SCRIPT.contains("</script"), "the bundle would end its own element");
        for reference in ["src=\"http", "href=\"http", "url(http", "@import"] {
            assert!(!exported("", "{}").contains(reference) && !SERVED.contains(reference), "{reference}");
        }
        // The served page would refuse even what is written into it.
        for inline in ["<style", "<script>", " style=", " on"] {
            assert!(!SERVED.contains(inline), "{inline}");
        }
    }
}
