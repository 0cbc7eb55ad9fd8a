//! Words that are images in place of the field's terms.

use super::workspace;

/// What is not written, and what is written in its place.
const IMAGES: [(&str, &str); 7] = [
    ("hear", "handle a message, get a signal"),
    ("hears", "handles a message, gets a signal"),
    ("heard", "handled, received"),
    ("news", "signals, changes"),
    ("zap", "drop entries"),
    ("hasten", "time scale"),
    ("seats", "TLB sets"),
];

/// Files in which an old name stays: the alias of an option and the test of it.
const ALIASES: [(&str, &str); 2] =
    [("crates/cli/src/options.rs", "hasten"), ("crates/cli/tests/policies.rs", "hasten")];

/// The words of a line in small letters; those of a name count one by one.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(|character: char| !character.is_alphanumeric()).map(str::to_lowercase)
}

#[test]
fn terms_stand_where_images_did() {
    let (root, files) = workspace();
    let mut found = Vec::new();
    for file in files.into_iter().filter(|file| !file.ends_with("cli/tests/sources/words.rs")) {
        let place = file.strip_prefix(root).unwrap().to_str().unwrap();
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            for word in words(line) {
                let image = IMAGES.iter().find(|(image, _)| *image == word);
                if let Some((image, term)) = image.filter(|(image, _)| !ALIASES.contains(&(place, *image))) {
                    found.push(format!("{place}:{}: \"{image}\": write {term}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn words_of_names_count() {
    assert_eq!(
        words("fn hear_one(News)").filter(|word| !word.is_empty()).collect::<Vec<_>>(),
        ["fn", "hear", "one", "news"]
    );
}
