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

/// Words that name no identifier, and what is written in their place.
const NO_NAMES: [(&str, &str); 4] =
    [("told", "reported, noted"), ("untold", "unreported"), ("patience", "timeout"), ("nap", "sleep")];

/// The term in place of a word of a name, which may be a plural or go on.
fn better_name(word: &str) -> Option<&'static str> {
    let is_image = |image: &str| word == image || word == format!("{image}s");
    let told = word.starts_with("told").then_some("told");
    NO_NAMES.iter().find(|(image, _)| is_image(image) || told == Some(*image)).map(|(_, term)| *term)
}

#[test]
fn names_are_the_terms_of_the_field() {
    let (root, files) = workspace();
    let mut found = Vec::new();
    for file in files.into_iter().filter(|file| !file.ends_with("cli/tests/sources/words.rs")) {
        let place = file.strip_prefix(root).unwrap().display();
        let code = code(&std::fs::read_to_string(&file).unwrap());
        for (number, line) in code.lines().enumerate() {
            let better = words(line).find_map(|word| better_name(&word));
            found.extend(better.map(|term| format!("{place}:{}: write {term}", number + 1)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn comments_and_texts_are_no_code() {
    let file = "let a = \"told \\\" told\"; // nap\nlet b = r#\"told \"told\"#;\nlet c = '\"'; untold(r, GroupedBy);\nMOST_NAPS\n";
    let code = code(file);
    assert_eq!(code, "let a = ; \nlet b = ;\nlet c = ; untold(r, GroupedBy);\nMOST_NAPS\n");
    let better = code.lines().map(|line| words(line).find_map(|word| better_name(&word)));
    assert_eq!(better.collect::<Vec<_>>(), [None, None, Some("unreported"), Some("sleep")]);
}

#[test]
fn words_of_names_count() {
    assert_eq!(
        words("fn hear_one(News)").filter(|word| !word.is_empty()).collect::<Vec<_>>(),
        ["fn", "hear", "one", "news"]
    );
}

/// Words with which no comment begins: pronouns as subjects, and words before which the subject is missing.
const NO_SUBJECTS: [&str; 8] = ["It", "Its", "They", "Their", "Of", "Those", "Who", "Whose"];

/// Numbers of the lines at which a block of comments begins without a noun as its subject.
fn begins_without_subject(file: &str) -> Vec<usize> {
    let mut before = false;
    let mut found = Vec::new();
    for (number, line) in file.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        let text = comment.unwrap_or_default().trim_start_matches(['/', '!']).trim_start();
        let first = text.split(|character: char| !character.is_alphanumeric()).next();
        if !before && first.is_some_and(|first| NO_SUBJECTS.contains(&first)) {
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
        let lines = begins_without_subject(&std::fs::read_to_string(&file).unwrap());
        found.extend(lines.iter().map(|number| {
            format!("{place}:{number}: begin with a noun, not with {}", NO_SUBJECTS.join(", "))
        }));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn subjects_are_missed_at_the_begin_of_a_block_alone() {
    let file = "/// It moves.\nlet a = 1;\n\n    // They move.\n\n/// The page moves.\n/// It is large.\n//! Items.\nIt\n/// Its size.\nlet b = 2;\n/// Of a page.\nlet c = 3;\n/// Whose it is.\nlet d = 4;\n/// Offsets of\n/// Those pages.\n";
    assert_eq!(begins_without_subject(file), [1, 4, 10, 12, 14]);
}
