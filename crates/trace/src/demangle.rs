//! Names of allocation sites as their programmers wrote them.

use std::borrow::Cow;

/// A site's name with its function's name as the source has it: C++ and Rust compilers spell types and scopes into one
/// word. What follows the function, such as a distance in bytes, stays. Other names stay as they are.
///
/// ```
/// use terrace_trace::demangled;
///
/// assert_eq!(demangled("_ZN7Minisat3vecIiE8capacityEi+0x6f"), "Minisat::vec<int>::capacity(int)+0x6f");
/// assert_eq!(demangled("main+0x12"), "main+0x12");
/// ```
pub fn demangled(name: &str) -> Cow<'_, str> {
    let (function, rest) = name.split_at(name.find("+0x").unwrap_or(name.len()));
    if let Ok(rust) = rustc_demangle::try_demangle(function) {
        // Without the hash that tells instances apart.
        return Cow::Owned(format!("{rust:#}{rest}"));
    }
    // A prefix that plain names do not have: the demangler would take a name of one letter for a type.
    if !function.starts_with("_Z") {
        return Cow::Borrowed(name);
    }
    let options = cpp_demangle::DemangleOptions::new().recursion_limit(RECURSION);
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(RECURSION);
    let symbol = cpp_demangle::Symbol::new_with_options(function, &parse).ok();
    match symbol.and_then(|symbol| symbol.demangle_with_options(&options).ok()) {
        Some(cpp) => Cow::Owned(cpp + rest),
        None => Cow::Borrowed(name),
    }
}

/// Names come from files of others: a nested one must not use up the stack.
const RECURSION: u32 = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn functions_of_cpp_and_rust_are_as_in_their_source() {
        for (name, expected) in [
            ("_Znwm", "operator new(unsigned long)"),
            ("_ZN3foo3barEv+0x10", "foo::bar()+0x10"),
            (
                "_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE+0x8",
                "core::fmt::Formatter::write_str+0x8",
            ),
            ("_RNvC6_123foo3bar+0x1", "123foo::bar+0x1"),
            ("libminisat.so.2.1.0+0xa678", "libminisat.so.2.1.0+0xa678"),
            ("i", "i"),
            ("", ""),
            ("_Zwhatever", "_Zwhatever"),
        ] {
            assert_eq!(demangled(name), expected, "{name}");
        }
    }

    #[test]
    fn a_name_nested_without_end_stays_as_it_is() {
        let nested = format!("_Z1f{}i", "P".repeat(100_000));
        assert_eq!(demangled(&nested), nested);
    }

    proptest! {
        #[test]
        fn no_name_fails(name in "(_ZN?|_R)?[A-Za-z0-9_$.+]{0,60}") {
            let _ = demangled(&name);
        }
    }
}
