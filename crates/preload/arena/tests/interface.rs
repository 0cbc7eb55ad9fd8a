//! A C program that is compiled against the header, by way of pkg-config, and calls every function.

use std::path::Path;
use std::process::Command;

#[test]
fn a_c_program_calls_every_function() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let prefix = tempfile::tempdir().unwrap();
    let place = |name: &str| prefix.path().join(name);
    std::fs::create_dir_all(place("lib/pkgconfig")).unwrap();
    std::fs::create_dir_all(place("include/terrace")).unwrap();
    let tests = std::env::current_exe().unwrap();
    let library = tests.parent().unwrap().join("libterrace.so");
    let files = [
        (library, "lib/libterrace.so"),
        (here.join("terrace.pc"), "lib/pkgconfig/terrace.pc"),
        (here.join("include/terrace.h"), "include/terrace.h"),
        (here.join("../../recorder/include/terrace/marker.h"), "include/terrace/marker.h"),
    ];
    for (from, to) in files {
        std::fs::copy(&from, place(to)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "terrace"])
        .env("PKG_CONFIG_PATH", place("lib/pkgconfig"))
        .output();
    let flags = match asked {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        }
        // Where it is not installed: what the file says.
        Err(_) => format!("-I{0}/include -L{0}/lib -lterrace", prefix.path().display()),
    };
    // Both headers, the other one first, under the old name of markers too.
    let other_way = "#include <terrace/marker.h>\n#include <terrace.h>\n\
        int both(struct terrace_memory *m) { terrace_mark_free(m->start); return terrace_free(m); }\n";
    std::fs::write(place("both.c"), other_way).unwrap();
    let old = "#include \"terrace.h\"\nvoid old(void *p) { terrace_alloc(p, 1, \"x\"); terrace_free(p); }\n";
    std::fs::write(place("old.c"), old).unwrap();
    let markers = format!("-I{}", here.join("../../recorder/include").display());
    for (source, flag) in [("both.c", flags.split_whitespace().next().unwrap()), ("old.c", &markers)] {
        for compiler in [&["gcc", "-std=c11"][..], &["g++", "-x", "c++"]] {
            let mut command = Command::new(compiler[0]);
            command.args(&compiler[1..]).args(["-Wall", "-Werror", "-fsyntax-only", flag]).arg(place(source));
            let Ok(output) = command.output() else { continue };
            assert!(output.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    for compiler in [&["gcc", "-std=c11"][..], &["g++", "-x", "c++", "-fsyntax-only"]] {
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(place("program"));
        let source = if compiler[0] == "gcc" { "tests/programs/interface.c" } else { "include/terrace.h" };
        let Ok(output) = command.arg(here.join(source)).args(flags.split_whitespace()).output() else {
            continue;
        };
        assert!(output.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let output = Command::new(place("program"))
        .env("LD_LIBRARY_PATH", place("lib"))
        .output()
        .expect("gcc is installed");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {printed}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), env!("CARGO_PKG_VERSION"));
    let described = std::fs::read_to_string(here.join("terrace.pc")).unwrap();
    assert!(described.contains(concat!("\nVersion: ", env!("CARGO_PKG_VERSION"), "\n")));
}
