//! `report.html`: one file that opens offline. The page (built from `page/src` into `page/dist`, committed) holds the
//! code and the style; this module puts the JSON document into it.

use crate::Comparison;

/// Built by `page/build.sh`, which also checks that it is up to date.
const SCRIPT: &str = include_str!("../page/dist/report.js");
const STYLE: &str = include_str!("../page/dist/report.css");
const SKELETON: &str = include_str!("../page/src/skeleton.html");

impl Comparison {
    /// The page as text.
    pub fn to_html(&self) -> String {
        let mut findings = String::new();
        for conclusion in self.conclusions() {
            findings += &format!("<p>{}</p>", escape_text(&conclusion.text));
        }
        fill(SKELETON, |name| match name {
            "title" => escape_text(&self.title),
            "style" => STYLE.to_owned(),
            "findings" => findings.clone(),
            "data" => escape_json(&self.to_compact_json()),
            "script" => SCRIPT.to_owned(),
            other => unreachable!("unknown placeholder {other} in the skeleton"),
        })
    }
}

/// The skeleton with its placeholders filled in. One pass, so that nothing a user wrote is itself taken for a placeholder.
pub(crate) fn fill(skeleton: &str, content: impl Fn(&str) -> String) -> String {
    let mut page = String::with_capacity(skeleton.len() + SCRIPT.len() + STYLE.len() + 65536);
    let mut rest = skeleton;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, tail) = after.split_once("}}").expect("the skeleton closes its placeholders");
        page += before;
        page += &content(name);
        rest = tail;
    }
    page + rest
}

/// JSON that no HTML parser can take for markup: `</script>` and `<!--` need the character `<`.
pub(crate) fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

pub(crate) fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;

    fn payload(page: &str) -> serde_json::Value {
        let start = page.find("id=\"data\">").expect("the payload") + "id=\"data\">".len();
        let end = start + page[start..].find("</script>").expect("the payload's end");
        serde_json::from_str(&page[start..end]).unwrap()
    }

    #[test]
    fn the_page_carries_the_numbers_of_the_document() {
        let comparison = test_data::comparison();
        let document: serde_json::Value = serde_json::from_str(&comparison.to_json()).unwrap();
        assert_eq!(payload(&comparison.to_html()), document);
    }

    #[test]
    fn hostile_names_stay_data() {
        let mut comparison = test_data::comparison();
        let hostile = "</script><script>alert(1)</script><!--{{script}}\u{2028}";
        comparison.title = hostile.to_owned();
        comparison.runs[0].design = hostile.to_owned();
        comparison.baseline = hostile.to_owned();
        comparison.runs[1].notes = vec![hostile.to_owned()];
        let page = comparison.to_html();
        assert!(!page.contains("alert(1)</script>") && !page.contains("<script>alert"));
        assert_eq!(payload(&page)["runs"][0]["design"], hostile);
    }

    #[test]
    fn the_page_asks_the_network_for_nothing() {
        assert!(!SCRIPT.contains("</script"), "the bundle would end its own element");
        let page = test_data::comparison().to_html();
        for reference in ["src=\"http", "href=\"http", "url(http", "@import", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn an_empty_comparison_makes_a_page() {
        let page = Comparison::default().to_html();
        assert_eq!(payload(&page)["runs"], serde_json::json!([]));
    }
}
