//! The fuzz targets' entry functions on changed journals and requests, and on noise, for every test run.

use proptest::prelude::*;
use terrace_live::fuzz;

const JOURNALS: [&str; 3] = [
    r#"{"pid":7,"began":1,"changes":[{"kind":"setting","path":"/sys/kernel/mm/mempolicy/weighted_interleave/node0","before":"1","after":"3"}]}"#,
    r#"{"pid":7,"began":1,"changes":[{"kind":"folder","path":"/sys/kernel/tracing/instances/terrace-7"}]}"#,
    r#"{"pid":7,"began":1,"changes":[{"kind":"damon","path":"/sys/kernel/mm/damon/admin/kdamonds"}]}"#,
];

const REQUESTS: [&str; 4] = [
    "GET /status HTTP/1.1\r\nHost: terrace\r\n\r\n",
    "GET /metrics?x=1 HTTP/1.0\r\n\r\n",
    "POST /pause HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    "POST /resume HTTP/1.1\r\n\r\n",
];

/// One of the texts with a few changes: places, and what stands there instead.
fn changed(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let telling = prop::sample::select(vec![
        "\"",
        "..",
        "-1",
        "99999999999999999999",
        "\r\n",
        " ",
        "{",
        "/",
        "\0",
        "é",
    ]);
    let piece = prop_oneof![
        telling.prop_map(|text: &str| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..8usize, piece), 0..6);
    (prop::sample::select(texts), edits).prop_map(|(text, edits)| {
        let mut bytes = text.as_bytes().to_vec();
        for (place, length, piece) in edits {
            let at = place.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, piece);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn journals(bytes in changed(&JOURNALS)) {
        fuzz::journal(&bytes);
    }

    #[test]
    fn requests(bytes in changed(&REQUESTS)) {
        fuzz::request(&bytes);
    }

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..12_000)) {
        fuzz::journal(&bytes);
        fuzz::request(&bytes);
    }
}
