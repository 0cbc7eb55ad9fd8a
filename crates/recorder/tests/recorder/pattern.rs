//! Programs whose accesses are known: exactly those must be recorded.

use crate::support::{Recorded, Workshop, options, run};
use terrace_trace::{Access, AccessKind, Event, Item, SequencedEvent};

/// Accesses of a region that lie in the object of the given name.
fn in_object(recorded: &Recorded, region: &str, object: &str) -> Vec<Access> {
    let range = recorded.object(object);
    let (_, accesses) = recorded.region(region);
    accesses.into_iter().filter(|a| range.contains(terrace_model::VirtAddr(a.addr))).collect()
}

#[test]
fn an_array_walk_is_recorded_exactly() {
    let workshop = Workshop::new();
    let program = workshop.static_c(
        r#"
        #include "terrace/marker.h"
        #define N 100000
        static long array[N];
        int main() {
            terrace_mark_alloc(array, sizeof array, "array");
            long *p = array, *end = array + N;
            terrace_region_begin("walk");
            __asm__ volatile("1: mov (%0), %%rax\n add $8, %0\n cmp %1, %0\n jne 1b"
                             : "+r"(p) : "r"(end) : "rax", "memory");
            terrace_region_end("walk");
        }
        "#,
    );
    let recorded = run(&[&program], &options());
    let start = recorded.object("array").start.0;
    let walk = in_object(&recorded, "walk", "array");
    assert_eq!(walk.len(), 100_000);
    for (i, access) in walk.iter().enumerate() {
        assert_eq!(access.addr, start + 8 * i as u64);
        assert_eq!((access.size, access.kind, access.depends_on), (8, AccessKind::Read, 0));
        if i > 0 {
            assert_eq!(access.instructions, 4);
        }
    }
    assert!(recorded.status.success());
}

#[test]
fn instructions_of_each_shape_are_counted_once() {
    let workshop = Workshop::new();
    // Per round: 1 vector load of 16 bytes, add to memory (load, store), locked add (load, store), 3 register
    // instructions in a block of their own, push and pop, then the loop's end: 14 instructions, jumps included.
    let source = r#"
        #include "terrace/marker.h"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        static char object[64] __attribute__((aligned(64)));
        static void *sleeper(void *unused) { for (;;) pause(); return unused; }
        int main(int argc, char **argv) {
            pthread_t thread;
            for (int i = 1; i < argc; i++) pthread_create(&thread, 0, sleeper, 0);
            terrace_mark_alloc(object, sizeof object, "object");
            terrace_region_begin("rounds");
            __asm__ volatile(
                "mov $1000, %%ecx\n"
                "1: movaps (%0), %%xmm0\n"
                "addq $1, 16(%0)\n"
                "lock addq $1, 24(%0)\n"
                "jmp 2f\n"
                "2: xor %%eax, %%eax\n add $3, %%eax\n imul %%eax, %%eax\n"
                "jmp 3f\n"
                "3: push 32(%0)\n pop 40(%0)\n"
                "nop\n nop\n dec %%ecx\n jnz 1b"
                : : "r"(object) : "rax", "rcx", "xmm0", "memory");
            terrace_region_end("rounds");
            exit(0);
        }
    "#;
    let program = workshop.static_c(source);
    // With a second thread QEMU leaves atomic instructions to functions of its own.
    check_shapes(&run(&[&program], &options()));
    check_shapes(&run(&[&program, &"thread"], &options()));
}

fn check_shapes(recorded: &Recorded) {
    let start = recorded.object("object").start.0;
    let (_, accesses) = recorded.region("rounds");
    let from = accesses.iter().position(|a| a.addr == start).unwrap();
    // 16-byte load; load and store; load and store; push: load, store; pop: load, store.
    let round = &accesses[from..from + 9];
    let shape: Vec<(u8, u8)> = round.iter().map(|a| (a.size, a.kind as u8)).collect();
    assert_eq!(shape, [(16, 0), (8, 0), (8, 1), (8, 0), (8, 1), (8, 0), (8, 1), (8, 0), (8, 1)]);
    for (i, round) in accesses[from..from + 9000].chunks(9).enumerate() {
        let total: u32 = round.iter().map(|a| u32::from(a.instructions)).sum();
        assert_eq!(round[0].addr, start, "round {i}");
        if i > 0 {
            assert_eq!(total, 14, "{round:?}");
        }
        let each: Vec<u16> = round.iter().skip(1).map(|a| a.instructions).collect();
        assert_eq!(each, [1, 0, 1, 0, 6, 0, 1, 0]);
    }
}

/// Most accesses have no callback, because their addresses follow from another's; those of whole programs are the same
/// with a callback each: addresses, sizes, kinds, dependences and instructions.
#[test]
fn derived_addresses_are_the_ones_that_qemu_says() {
    let workshop = Workshop::new();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <pthread.h>
        struct item { int key; short weight; char name[10]; double value; struct item *next; };
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static long counts[64];
        static int compare(const void *a, const void *b) {
            return ((struct item *)a)->key - ((struct item *)b)->key;
        }
        int main() {
            int n = 1000;
            struct item *items = calloc(n, sizeof *items);
            unsigned x = 1;
            for (int i = 0; i < n; i++) {
                x = x * 1664525 + 1013904223;
                items[i].key = x >> 8;
                items[i].weight += x & 63;
                items[i].value = items[i].key / 3.0;
                items[i].next = i ? &items[i - 1] : 0;
                counts[x & 63] ^= x;
                counts[x >> 26]++;
                __atomic_fetch_add(&counts[3], 2, __ATOMIC_SEQ_CST);
                pthread_mutex_lock(&lock);
                snprintf(items[i].name, 10, "%d", i);
                pthread_mutex_unlock(&lock);
            }
            qsort(items, n, sizeof *items, compare);
            double sum = 0;
            char *copy = malloc(n * sizeof *items);
            memcpy(copy, items, n * sizeof *items);
            for (struct item *i = &items[n - 1]; i; i = i->next) sum += i->value + strlen(i->name) + i->weight;
            printf("%f %d\n", sum, memcmp(copy, items, n * sizeof *items));
        }
    "#;
    let list = workshop.path("list");
    std::fs::write(&list, (0..1500u64).map(|i| format!("{}\n", i * 7919 % 1511)).collect::<String>())
        .unwrap();
    let query = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where                  i < 250) insert into t select i, hex(i) from n; create index x on t(b); select count(*) from t;";
    let slow = workshop.compile("cc", "slow.c", source, &["-O0"]);
    let fast = workshop.compile("cc", "fast.c", source, &["-O2", "-static"]);
    let commands: [&[&dyn AsRef<std::ffi::OsStr>]; 4] = [
        &[&slow],
        &[&fast],
        // Without a size it asks how much memory is free, which differs from run to run.
        &[&"sort", &"--buffer-size=1M", &"--parallel=1", &"-o", &"/dev/null", &list],
        &[&"sqlite3", &":memory:", &query],
    ];
    for command in commands {
        assert!(derived_as_said(command) > 200_000);
    }
}

/// Records a program with few callbacks and with all, and compares; how many accesses it makes.
fn derived_as_said(command: &[&dyn AsRef<std::ffi::OsStr>]) -> usize {
    let record = |derive_addresses| {
        // The preload library's settings would move the stack.
        let options = terrace_recorder::RecordOptions {
            derive_addresses,
            follow_exec: false,
            program_counters: true,
            ..options()
        };
        let recorded = run(command, &options);
        assert!(recorded.status.success());
        let accesses: Vec<Access> =
            recorded.batches.iter().flat_map(|b| (0..b.len()).map(|i| b.access(i))).collect();
        (accesses, recorded.batches.iter().map(|b| b.instruction_count()).sum::<u64>())
    };
    let ((derived, instructions), (said, counted)) = (record(true), record(false));
    let different = derived.iter().zip(&said).position(|(derived, said)| derived != said);
    assert_eq!(different.map(|i| (i, derived[i], said[i])), None, "{:?}", command[0].as_ref());
    assert_eq!((derived.len(), instructions), (said.len(), counted));
    derived.len()
}

/// Each kind of instruction that may do without a callback, several times in a row on one object.
#[test]
fn derived_accesses_of_every_instruction_are_the_ones_that_qemu_says() {
    let forms: [(&str, &str); 13] = [
        (
            "OP AT(%rsi), %rbx",
            "mov movbe add sub adc sbb and or xor cmp test imul bsf bsr tzcnt lzcnt popcnt cmova cmovae cmovb cmovbe \
             cmove cmovne cmovg cmovge cmovl cmovle cmovs cmovns cmovo cmovno cmovp cmovnp movzbq movzwq movsbq movswq \
             movslq",
        ),
        ("OP %rbx, AT(%rsi)", "mov movbe add sub adc sbb and or xor cmp xchg xadd test"),
        ("lock OP %rbx, AT(%rsi)", "add sub adc sbb and or xor xadd"),
        ("OPl $3, AT(%rsi)", "mov add sub adc sbb and or xor cmp test"),
        ("OPq AT(%rsi)", "inc dec neg not mul imul"),
        ("lock OPw AT(%rsi)", "inc dec neg not"),
        ("OP %rbx\\n push $7\\n pop %rcx\\n pop %rbx\\n mov AT(%rsi), %cl", "push"),
        ("OP 9f(%rip), %rbx\\n mov %rbx, AT(%rsi)\\n jmp *AT(%rsi)\\n 9: mov AT(%rsi), %rcx", "lea"),
        (
            "OP AT(%rsi), %xmm1",
            "movd movq movss movsd movlps movhps movlpd movhpd movaps movups movapd movupd movdqa movdqu addss addsd subss \
             subsd mulss mulsd divss divsd minss minsd maxss maxsd ucomiss ucomisd comiss comisd sqrtss sqrtsd cvtsi2ssl \
             cvtsi2ssq cvtsi2sdl cvtsi2sdq cvtss2sd cvtsd2ss addps addpd subps subpd mulps mulpd divps divpd andps andpd \
             orps orpd xorps xorpd pand pandn por pxor paddb paddw paddd paddq psubb psubw psubd psubq pcmpeqb pcmpeqw \
             pcmpeqd pcmpgtb pcmpgtd pminub pmaxub pshufb vmovd vmovq vmovaps vmovups vmovapd vmovupd vmovdqa vmovdqu",
        ),
        (
            "OP %xmm1, AT(%rsi)",
            "movd movq movss movsd movlps movhps movlpd movhpd movaps movups movapd movupd movdqa movdqu vmovd vmovq",
        ),
        ("OP AT(%rsi), %rbx", "cvttss2si cvttsd2si"),
        ("OP $1, AT(%rsi), %xmm1\\n vmovdqu %ymm1, AT(%rsi)\\n vmovaps %ymm1, AT(%rsi)", "pshufd"),
        (
            "OP AT(%rsi), %ymm1, %ymm1\\n OP AT(%rsi), %xmm1, %xmm1\\n vmovdqu AT(%rsi), %ymm2",
            "vpand vpandn vpor vpxor vpcmpeqb vpcmpeqd vpminub vpsubb vpaddb",
        ),
    ];
    let mut code = String::new();
    for (form, operations) in forms {
        for operation in operations.split_whitespace() {
            for at in [0, 64, 128, 32] {
                let line = form.replace("OP", operation).replace("AT", &at.to_string());
                code += &format!("        \"{line}\\n\"\n");
            }
        }
    }
    let workshop = Workshop::new();
    let program = workshop.static_c(&format!(
        "static double object[64] __attribute__((aligned(64))) = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};
        int main() {{
            for (int i = 0; i < 9; i++)
                __asm__ volatile(\"sub $256, %%rsp\\n call 7f\\n jmp 8f\\n 7: push %%rbp\\n mov %%rsp, %%rbp\\n\"
        {code}
                \"leave\\n ret\\n 8: add $256, %%rsp\\n vzeroupper\"
                : : \"S\"(object) : \"rax\", \"rbx\", \"rcx\", \"rdx\", \"xmm0\", \"xmm1\", \"xmm2\", \"memory\", \"cc\");
            return 0;
        }}",
        code = code.replace('%', "%%"),
    ));
    assert!(derived_as_said(&[&program]) > 10_000);
}

/// Blocks without an access make no record: what they retire waits for the next one, which has room for 65,535.
#[test]
fn instructions_without_any_access_are_counted() {
    let workshop = Workshop::new();
    let program = workshop.static_c(
        r#"
        #include "terrace/marker.h"
        static long sink;
        #define ROUNDS(n) __asm__ volatile( \
            "mov %%rcx, %0\n mov %1, %%ecx\n jmp 1f\n 1: nop\n dec %%ecx\n jnz 1b\n mov %%rcx, %0" \
            : "=m"(sink) : "i"(n) : "rcx")
        int main() {
            terrace_mark_alloc(&sink, sizeof sink, "sink");
            ROUNDS(10);
            ROUNDS(1000000);
        }
        "#,
    );
    let recorded = run(&[&program], &options());
    let sink = recorded.object("sink").start.0;
    let (mut retired, mut sums) = (0, Vec::new());
    for (_, item) in recorded.items() {
        match item {
            Item::Access(access) => {
                retired += u64::from(access.instructions);
                if access.addr == sink {
                    sums.push(std::mem::take(&mut retired));
                }
            }
            Item::Event(SequencedEvent { event: Event::Compute { instructions }, .. }) => {
                retired += *instructions
            }
            Item::Event(_) => {}
        }
    }
    // The loop, two instructions before it, and the store.
    assert_eq!((sums.len(), sums[1], sums[3]), (4, 3 * 10 + 3, 3 * 1_000_000 + 3));
}

#[test]
fn repeated_string_instructions_count_once() {
    let workshop = Workshop::new();
    let program = workshop.static_c(
        r#"
        #include "terrace/marker.h"
        static char from[4096], to[4096];
        int main() {
            terrace_mark_alloc(to, sizeof to, "to");
            void *s = from, *d = to;
            long n = 512;
            terrace_region_begin("copy");
            __asm__ volatile("rep movsq" : "+S"(s), "+D"(d), "+c"(n) : : "memory");
            terrace_region_end("copy");
        }
        "#,
    );
    let recorded = run(&[&program], &options());
    let (_, accesses) = recorded.region("copy");
    assert_eq!(in_object(&recorded, "copy", "to").len(), 512);
    let instructions: u32 = accesses.iter().map(|a| u32::from(a.instructions)).sum();
    assert!(instructions < 50, "{instructions} instructions for one");
}

/// QEMU would fill memory byte by byte if the C library used the string instructions a processor is fast at.
#[test]
fn filling_and_copying_use_wide_accesses() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #include "terrace/marker.h"
        #include <string.h>
        static char from[1 << 20], to[1 << 20];
        int main() {
            terrace_mark_alloc(to, sizeof to, "to");
            terrace_region_begin("fill");
            memset(to, 1, sizeof to);
            terrace_region_end("fill");
            terrace_region_begin("copy");
            memcpy(to, from, sizeof to);
            terrace_region_end("copy");
            return to[17];
        }
        "#);
    let recorded = run(&[&program], &options());
    for region in ["fill", "copy"] {
        let stores = in_object(&recorded, region, "to");
        let bytes: u64 = stores.iter().map(|a| u64::from(a.size)).sum();
        assert!(bytes >= 1 << 20 && stores.len() <= (1 << 20) / 16 + 64, "{region}: {}", stores.len());
    }
}

const CHASE: &str = r#"
    #include "terrace/marker.h"
    #include <stdlib.h>
    #define N 5000
    static void *nodes[N];
    static long numbers[N];
    int main(int argc, char **argv) {
        terrace_mark_alloc(nodes, sizeof nodes, "nodes");
        terrace_mark_alloc(numbers, sizeof numbers, "numbers");
        for (long i = 0; i < N; i++) nodes[i * 7 % N] = &nodes[(i + 1) * 7 % N];
        void **p = nodes;
        terrace_region_begin("chase");
        for (int i = 0; i < N; i++) p = *p;
        terrace_region_end("chase");
        long sum = 0;
        terrace_region_begin("sum");
        for (int i = 0; i < N; i++) sum += numbers[i];
        terrace_region_end("sum");
        terrace_region_begin("indirect");
        for (int i = 0; i < N; i++) sum += numbers[numbers[i]];
        terrace_region_end("indirect");
        return sum == 1 && p == 0;
    }
"#;

#[test]
fn dependences_are_found_where_they_are() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", "chase.c", CHASE, &["-O1", "-static", "-fno-tree-vectorize"]);
    let recorded = run(&[&program], &options());
    let depends = |region, object| -> Vec<u8> {
        in_object(&recorded, region, object).iter().map(|a| a.depends_on).collect()
    };
    let chase = depends("chase", "nodes");
    assert_eq!(chase.len(), 5000);
    assert!(chase[1..].iter().all(|&d| d == 1), "{:?}", &chase[..20]);
    // The array's address may come from the stack, where the compiler saved it: from a load before the loop.
    let comes_from_before = |i: usize, d: u8| d == 0 || usize::from(d) > i;
    let sum = depends("sum", "numbers");
    assert_eq!(sum.len(), 5000);
    assert!(sum.iter().enumerate().all(|(i, &d)| comes_from_before(i, d)), "{:?}", &sum[..20]);
    assert!(sum[256..].iter().all(|&d| d == 0), "too far back to be told");
    let indirect = depends("indirect", "numbers");
    assert_eq!(indirect.len(), 10_000);
    assert!(indirect.chunks(2).all(|pair| pair[1] == 1), "{:?}", &indirect[..20]);
    assert!(indirect.iter().enumerate().step_by(2).all(|(i, &d)| comes_from_before(i, d)));
}

#[test]
fn dependences_are_an_option() {
    let workshop = Workshop::new();
    let program = workshop.static_c(CHASE);
    let plain = terrace_recorder::RecordOptions { dependences: false, ..options() };
    let recorded = run(&[&program], &plain);
    assert!(recorded.batches.iter().all(|b| b.depends_on.iter().all(|&d| d == 0)));
    // Counting is the same, with and without.
    let with = run(&[&program], &options());
    let count = |r: &Recorded| -> u64 {
        let (_, accesses) = r.region("chase");
        accesses.iter().map(|a| u64::from(a.instructions)).sum()
    };
    assert_eq!(count(&recorded), count(&with));
}

#[test]
fn instruction_addresses_are_an_option() {
    let workshop = Workshop::new();
    let program = workshop.static_c(CHASE);
    let recorded = run(&[&program], &terrace_recorder::RecordOptions { program_counters: true, ..options() });
    let mut pcs: Vec<u64> =
        in_object(&recorded, "chase", "nodes").iter().map(|a| a.pc.expect("asked for")).collect();
    pcs.dedup();
    assert_eq!(pcs.len(), 1, "one load in the loop");
    assert!(recorded.events().any(|(_, e)| matches!(
        &e.event,
        terrace_trace::Event::Map { range, .. } if range.contains(terrace_model::VirtAddr(pcs[0]))
    )));
}
