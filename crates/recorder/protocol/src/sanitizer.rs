//! Programs built with AddressSanitizer, whose shadow memory takes more than 20 GB of the host under QEMU user mode.

use std::io::Read;
use std::path::Path;

/// The function that every such program calls first.
const NAME: &[u8] = b"__asan_init";

/// Whether a program is built with AddressSanitizer: it names the function that every such program calls first. A file
/// that cannot be read is not.
pub fn has_address_sanitizer(program: &Path) -> bool {
    let Ok(mut file) = std::fs::File::open(program) else { return false };
    let mut buffer = vec![0; 1 << 20];
    // The end of what was read before stays at the beginning.
    let mut kept = 0;
    while let Ok(read) = file.read(&mut buffer[kept..])
        && read > 0
    {
        let filled = kept + read;
        if buffer[..filled].windows(NAME.len()).any(|window| window == NAME) {
            return true;
        }
        kept = filled.min(NAME.len() - 1);
        buffer.copy_within(filled - kept..filled, 0);
    }
    false
}

/// The program that a command line of QEMU, as in `/proc/self/cmdline`, executes: the word behind `--`.
pub fn program_of(command_line: &[u8]) -> Option<&[u8]> {
    let mut words = command_line.split(|&byte| byte == 0);
    words.find(|word| *word == b"--")?;
    words.next().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_sanitizer_is_found_wherever_its_name_lies() {
        let path = std::env::temp_dir().join(format!("terrace-sanitizer-{}", std::process::id()));
        for before in [0, (1 << 20) - 5, (1 << 20) + 7] {
            std::fs::write(&path, [&vec![0; before][..], b"__asan_init"].concat()).unwrap();
            assert!(has_address_sanitizer(&path), "{before}");
        }
        std::fs::write(&path, vec![0; 3 << 20]).unwrap();
        assert!(!has_address_sanitizer(&path));
        std::fs::remove_file(&path).unwrap();
        assert!(!has_address_sanitizer(&path));
    }

    #[test]
    fn the_program_stands_behind_the_emulators_options() {
        assert_eq!(program_of(b"qemu\0-0\0ls\0--\0/bin/ls\0--\0x\0"), Some(&b"/bin/ls"[..]));
        assert_eq!(program_of(b"qemu\0-0\0ls\0"), None);
        assert_eq!(program_of(b"qemu\0--\0"), None);
    }
}
