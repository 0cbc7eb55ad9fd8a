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

/// A file's code without its comments and texts; lines stay lines.
fn code(file: &str) -> String {
    let mut code = String::new();
    let mut rest = file;
    while let Some(first) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|rest| &rest[..rest.len() - rest.trim_start_matches('#').len()]);
        let raw = raw.filter(|hashes| rest[1 + hashes.len()..].starts_with('"'));
        let raw = raw.filter(|_| !code.ends_with(|before: char| before.is_alphanumeric() || before == '_'));
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(hashes) = raw {
            let begin = hashes.len() + 2;
            let end = format!("\"{hashes}");
            rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
        } else if first == '"' {
            let mut escaped = false;
            let ends = |character: char| {
                let ends = character == '"' && !escaped;
                escaped = character == '\\' && !escaped;
                ends
            };
            rest[1..].find(ends).map_or(rest.len(), |at| at + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.extend(rest[..skipped].chars().filter(|character| *character == '\n'));
        rest = &rest[skipped..];
    }
    code
}

/// Whether a word of a name says that something was told, which names neither what nor to whom.
fn is_told(word: &str) -> bool {
    word.starts_with("told") || word == "untold"
}

#[test]
fn names_say_what_was_reported_or_noted() {
    let (root, files) = workspace();
    let mut found = Vec::new();
    for file in files.into_iter().filter(|file| !file.ends_with("cli/tests/sources/words.rs")) {
        let place = file.strip_prefix(root).unwrap().display();
        let code = code(&std::fs::read_to_string(&file).unwrap());
        let lines = code.lines().enumerate().filter(|(_, line)| words(line).any(|word| is_told(&word)));
        found.extend(
            lines.map(|(number, _)| format!("{place}:{}: write reported, noted or by whom", number + 1)),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn comments_and_texts_are_no_code() {
    let file = "let a = \"told \\\" told\"; // told\nlet b = r#\"told \"told\"#;\nlet c = '\"'; untold(r, GroupedBy);\n";
    let code = code(file);
    assert_eq!(code, "let a = ; \nlet b = ;\nlet c = ; untold(r, GroupedBy);\n");
    assert_eq!(
        code.lines().map(|line| words(line).any(|word| is_told(&word))).collect::<Vec<_>>(),
        [false, false, true]
    );
}

#[test]
fn words_of_names_count() {
    assert_eq!(
        words("fn hear_one(News)").filter(|word| !word.is_empty()).collect::<Vec<_>>(),
        ["fn", "hear", "one", "news"]
    );
}

/// Numbers of the lines at which a block of comments begins with a pronoun as its subject.
fn pronouns_at_begin(file: &str) -> Vec<usize> {
    let mut before = false;
    let mut found = Vec::new();
    for (number, line) in file.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        let text = comment.unwrap_or_default().trim_start_matches(['/', '!']).trim_start();
        let first = text.split(|character: char| !character.is_alphanumeric()).next();
        if !before && matches!(first, Some("It" | "They" | "Its" | "Their")) {
            found.push(number + 1);
        }
        before = comment.is_some();
    }
    found
}

#[test]
fn comments_begin_with_a_noun() {
    let (root, files) = workspace();
    let mut found = Vec::new();
    for file in files {
        let place = file.strip_prefix(root).unwrap().display();
        let lines = pronouns_at_begin(&std::fs::read_to_string(&file).unwrap());
        found.extend(
            lines
                .iter()
                .map(|number| format!("{place}:{number}: write the noun, not it, they, its or their")),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn pronouns_count_at_the_begin_of_a_block_alone() {
    let file = "/// It moves.\nlet a = 1;\n\n    // They move.\n\n/// The page moves.\n/// It is large.\n//! Items.\nIt\n/// Its size.\n";
    assert_eq!(pronouns_at_begin(file), [1, 4, 10]);
}
