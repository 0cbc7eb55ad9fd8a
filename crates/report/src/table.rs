//! Tables for the terminal: a comparison and a single run, in a given width.

use crate::caveats::{caveats, machines};
use crate::format::{bytes, count, fit, joules, percent, seconds, significant, slowdown, speedup, wrap};
use crate::run::{component_label, has_times};
use crate::{
    Charset, Comparison, Contiguity, InputSummary, PolicyWork, RunRecord, Tiering, TranslationCoherence,
};
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

/// Columns after the design's name.
const COLUMNS: [&str; 9] = ["time", "speed", "+/-", "CPI", "TLB/k", "transl", "cache", "mem", "OS"];
/// Spaces between columns.
const GAP: usize = 2;
/// A design's name keeps at least this many characters.
const NAME_WIDTH: usize = 9;

impl Comparison {
    /// Per input a heading, a row per design and the conclusion in words; no line is wider than `width` characters
    /// (at least 76).
    pub fn table(&self, width: usize, charset: Charset) -> String {
        let width = width.max(76);
        if self.runs.is_empty() {
            return "No runs: nothing to compare.\n".to_owned();
        }
        let mut out = String::new();
        for input in self.input_names() {
            out += &fit(&heading(input, self.summary_of(input)), width, charset);
            out.push('\n');
            if let Some(baseline) = self.baseline_of(input) {
                out += &self.designs(input, baseline, width, charset);
                out += &self.mixes(input, width, charset);
                out += &self.tiers(input, width, charset);
                out += &self.contiguity(input, baseline, width, charset);
                out += &self.translation_coherence(input, width, charset);
                out += &self.virtual_machines(input, width, charset);
            } else {
                out += "No run of this input is complete.\n";
            }
            out.push('\n');
        }
        for conclusion in self.conclusions() {
            let text = match charset {
                Charset::Ascii => conclusion.text,
                Charset::Unicode => times_sign(&conclusion.text),
            };
            out += &wrap(&text, width, "  ");
            out.push('\n');
        }
        out += &machines(&self.runs, width);
        out += &caveats(&self.runs, width);
        out
    }
}

impl Comparison {
    /// The first table: how fast each design is, and where its cycles went.
    fn designs(&self, input: &str, baseline: &RunRecord, width: usize, charset: Charset) -> String {
        let none = || "-".to_owned();
        let numbers = |run: &RunRecord| {
            // Where accesses take no time, shares of the cycles are none of the run time.
            let timed = has_times(&run.fidelity);
            let share = |component| run.cycle_share(component).filter(|_| timed).map_or_else(none, percent);
            let speed = self.speedup_of(run);
            [
                if run.is_timed() { seconds(run.seconds_simulated) } else { none() },
                speed.map_or_else(none, |s| speedup(s.value) + charset.times()),
                speed.and_then(|s| s.share()).map_or_else(none, percent),
                run.cycles_per_instruction().filter(|_| timed).map_or_else(none, significant),
                run.per_kilo_instruction("tlb.l2.miss").map_or_else(none, significant),
                share("translation"),
                share("cache"),
                share("memory"),
                share("os"),
            ]
        };
        // Without intervals there is no column for them.
        let known = self.runs_of(input).any(|run| run.uncertainty.is_some());
        let shown = |at: &usize| known || COLUMNS[*at] != "+/-";
        let columns: Vec<&str> = (0..COLUMNS.len()).filter(shown).map(|at| COLUMNS[at]).collect();
        let cells = |run| {
            let all: Vec<String> = numbers(run).into();
            all.into_iter().enumerate().filter(|(at, _)| shown(at)).map(|(_, cell)| cell).collect()
        };
        let rows: Vec<(&str, Vec<String>)> =
            self.runs_of(input).map(|run| (run.design.as_str(), cells(run))).collect();
        let moved = if known { "+/-: how far assumed constants and seeds move it; " } else { "" };
        let base = fit(&baseline.design, 28, charset);
        let legend = format!("speed: against {base}; {moved}TLB/k: L2 TLB misses per 1000 instr.");
        rows_of_designs(&columns, &rows, width, charset) + &wrap(&legend, width, "") + "\n"
    }

    /// Where the memory lay and what moving it cost, on machines with several tiers.
    fn tiers(&self, input: &str, width: usize, charset: Charset) -> String {
        let runs: Vec<(&RunRecord, Tiering)> =
            self.runs_of(input).filter_map(|run| Some((run, self.tiering_of(run)?))).collect();
        let moves = runs.iter().any(|(_, tiering)| tiering.policy.is_some());
        let spreads = runs.iter().any(|(_, tiering)| tiering.tiers[0].share < 1.0);
        if !moves && !spreads {
            return String::new();
        }
        let slowdowns = runs.iter().any(|(_, tiering)| tiering.slowdown.is_some());
        let mut columns: Vec<&str> = if slowdowns { vec!["slowdown"] } else { Vec::new() };
        columns.push("fast");
        if !self.prices.is_empty() {
            columns.push("cost");
        }
        if moves {
            columns.extend(["up", "down", "back", "copied", "waited"]);
        }
        let none = || "-".to_owned();
        let rows: Vec<(&str, Vec<String>)> = runs
            .iter()
            .map(|(run, tiering)| {
                let work =
                    |text: &dyn Fn(&PolicyWork) -> String| tiering.policy.as_ref().map_or_else(none, text);
                let cells = columns.iter().map(|column| match *column {
                    "slowdown" => tiering.slowdown.map_or_else(none, slowdown),
                    "fast" => percent(tiering.tiers[0].share),
                    "cost" => tiering.cost.map_or_else(none, percent),
                    "up" => work(&|work| count(work.promoted_pages)),
                    "down" => work(&|work| count(work.demoted_pages)),
                    "back" => work(&|work| count(work.ping_pong_pages)),
                    "copied" => work(&|work| bytes(work.copied_bytes)),
                    _ => work(&|work| seconds(work.wait_seconds)),
                });
                (run.design.as_str(), cells.collect())
            })
            .collect();
        let mut legend = String::new();
        if slowdowns {
            legend += "slowdown: against everything fast; ";
        }
        let fastest = &runs[0].1.tiers[0].name;
        legend += &format!("fast: share of the memory in use that is {fastest}");
        if !self.prices.is_empty() {
            let prices: Vec<String> =
                self.prices.iter().map(|(tier, price)| format!("{tier} at {price}")).collect();
            legend += &format!("; cost: {}, of all {fastest}", prices.join(", "));
        }
        if moves {
            legend += "; up, down: 4 KiB pages moved; back: within a period; waited: for pages on the move";
        }
        format!("\n{}{}\n", rows_of_designs(&columns, &rows, width, charset), wrap(&legend, width, ""))
    }

    /// What contiguity gained and what producing it cost, where hardware or a policy is about it.
    fn contiguity(&self, input: &str, baseline: &RunRecord, width: usize, charset: Charset) -> String {
        let runs: Vec<(&RunRecord, Contiguity)> =
            self.runs_of(input).filter_map(|run| Some((run, self.contiguity_of(run)?))).collect();
        if runs.is_empty() {
            return String::new();
        }
        let none = || "-".to_owned();
        let signed = |span: f64| match span {
            span if span < 0.0 => format!("-{}", seconds(-span)),
            span => seconds(span),
        };
        let rows: Vec<(&str, Vec<String>)> = runs
            .iter()
            .map(|(run, one)| {
                let work = |text: &dyn Fn(&PolicyWork) -> String| one.policy.as_ref().map_or_else(none, text);
                let cells = vec![
                    signed(one.saved_seconds),
                    one.coverage_128.map_or_else(none, percent),
                    work(&|work| bytes(work.copied_bytes)),
                    work(&|work| seconds(work.policy_seconds + work.migration_seconds)),
                    work(&|work| count(work.interrupts)),
                    work(&|work| seconds(work.wait_seconds)),
                    signed(one.net_seconds),
                ];
                (run.design.as_str(), cells)
            })
            .collect();
        let columns = ["saved", "in 128", "copied", "beside", "interr", "waited", "net"];
        let legend = format!(
            "saved: time in translation less than {}'s; in 128: memory in the 128 largest contiguous regions; beside: \
             time of processors that scanned and copied; interr: cores interrupted; waited: for pages on the move, \
             all threads; net: run time less than {0}'s",
            fit(&baseline.design, 28, charset)
        );
        format!("\n{}{}\n", rows_of_designs(&columns, &rows, width, charset), wrap(&legend, width, ""))
    }
}

impl Comparison {
    /// What keeping translations coherent took, and what hardware would give back.
    fn translation_coherence(&self, input: &str, width: usize, charset: Charset) -> String {
        let runs: Vec<(&RunRecord, TranslationCoherence)> =
            self.runs_of(input).filter_map(|run| Some((run, self.translation_coherence_of(run)?))).collect();
        if runs.is_empty() {
            return String::new();
        }
        let none = || "-".to_owned();
        // Energy takes the place of messages: a line has no room for both.
        let has_energy = runs.iter().any(|(_, one)| one.joules.is_some());
        let rows: Vec<(&str, Vec<String>)> = runs
            .iter()
            .map(|(run, one)| {
                let cells = vec![
                    one.scheme.clone(),
                    percent(one.share),
                    seconds(one.waited_seconds),
                    seconds(one.interrupted_seconds),
                    count(one.interrupts),
                    if has_energy { one.joules.map_or_else(none, joules) } else { count(one.messages) },
                    one.net_seconds.map_or_else(none, |span| match span {
                        span if span < 0.0 => format!("-{}", seconds(-span)),
                        span => seconds(span),
                    }),
                ];
                (run.design.as_str(), cells)
            })
            .collect();
        let (work, meaning) = if has_energy {
            ("energy", "energy: of translation with its coherence")
        } else {
            ("messages", "messages: of the directory, to range TLBs")
        };
        let columns = ["coherence", "share", "waited", "held up", "interr", work, "net"];
        let legend = format!(
            "coherence: how cores lose translations whose page-table entries changed; share: of the \
             processors' time, at most what hardware gives back, and what needlessly dropped translations take; \
             waited: who made the changes; held up: by interrupts; {meaning}; net: run time less than with software"
        );
        format!("\n{}{}\n", rows_of_designs(&columns, &rows, width, charset), wrap(&legend, width, ""))
    }
}

impl RunRecord {
    /// Key numbers and a bar per component of the cycles; no line is wider than `width` characters (at least 72).
    pub fn summary(&self, width: usize, charset: Charset) -> String {
        let width = width.max(72);
        let mut out = fit(&format!("{} on {}: {}", self.design, self.machine, self.input), width, charset);
        out.push('\n');
        let mut lines: Vec<(&str, String)> = Vec::new();
        if self.is_timed() {
            lines.push((
                "simulated time",
                format!("{} ({} cycles)", seconds(self.seconds_simulated), count(self.cycles)),
            ));
        }
        lines.push(("instructions", count(self.instructions)));
        lines.push(("accesses", count(self.accesses)));
        let measures = [
            ("cycles per instruction", self.cycles_per_instruction().filter(|_| has_times(&self.fidelity))),
            ("L2 TLB misses per 1000 instructions", self.per_kilo_instruction("tlb.l2.miss")),
            ("page walks per 1000 instructions", self.per_kilo_instruction("walk.count")),
            ("last-level misses per 1000 instructions", self.per_kilo_instruction("cache.llc.miss")),
        ];
        lines.extend(measures.into_iter().filter_map(|(label, value)| Some((label, significant(value?)))));
        if self.stats.get("os.faults").is_some() {
            lines.push(("page faults", count(self.stats.integer("os.faults"))));
        }
        lines.push((
            "simulation",
            format!(
                "{} ({} accesses/s)",
                seconds(self.wall_seconds),
                count(self.accesses_per_second() as u64)
            ),
        ));
        for (label, value) in lines {
            out += &fit(&format!("  {label:<40} {value}"), width, charset);
            out.push('\n');
        }
        out += &self.mix_in_words(width, charset);
        out += &self.cycle_bars(width, charset);
        out += &machines(std::slice::from_ref(self), width);
        out += &caveats(std::slice::from_ref(self), width);
        out
    }

    fn cycle_bars(&self, width: usize, charset: Charset) -> String {
        let components = self.cycle_components();
        let total: f64 = components.iter().map(|c| c.cycles).sum();
        if total <= 0.0 {
            return String::new();
        }
        let mut out = match has_times(&self.fidelity) {
            true => "\nwhere the cycles went\n".to_owned(),
            false => format!("\nwhere the cycles went that fidelity {} counts\n", self.fidelity),
        };
        let room = width - 45;
        for component in components {
            let share = component.cycles / total;
            let label = fit(component_label(&component.name), 34, charset);
            let line = format!("  {label:<34} {:>4}  {}", percent(share), bar(share, room, charset));
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

/// `gups  16.8 M accesses, 8.00 GiB touched`.
fn heading(input: &str, summary: Option<&InputSummary>) -> String {
    match summary {
        Some(s) => {
            let estimate = if s.footprint_is_estimate { "about " } else { "" };
            let threads = if s.threads > 1 { format!(", {} threads", s.threads) } else { String::new() };
            let footprint = bytes(s.footprint_bytes);
            format!("{input}: {} accesses, {estimate}{footprint} touched{threads}", count(s.accesses))
        }
        None => input.to_owned(),
    }
}

/// A row per design; the names give way where the numbers need the room.
pub(crate) fn rows_of_designs(
    columns: &[&str],
    rows: &[(&str, Vec<String>)],
    width: usize,
    charset: Charset,
) -> String {
    let numbers_width: usize = (0..columns.len())
        .map(|column| {
            let cells = rows.iter().map(|(_, row)| row[column].chars().count());
            GAP + cells.chain([columns[column].len()]).max().unwrap_or(0)
        })
        .sum();
    let name_width = width.saturating_sub(numbers_width).max(NAME_WIDTH);

    let mut table = Table::new();
    let rule = if charset == Charset::Unicode { '─' } else { '-' };
    table.load_style(TableStyle::new().header_separator(LineStyle::new(rule, rule, rule, ' ')));
    table.set_header(["design"].iter().chain(columns));
    for (design, row) in rows {
        table.add_row([fit(design, name_width, charset)].iter().chain(row));
    }
    // The border between columns is one of the spaces.
    for column in table.column_iter_mut() {
        let is_name = column.index == 0;
        column.set_padding((if is_name { 0 } else { GAP as u16 - 1 }, 0));
        if !is_name {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for line in table.lines() {
        // The invisible left and right borders take a column each.
        text += line.get(line.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default().trim_end();
        text.push('\n');
    }
    text
}

/// A bar of `share` of `room` characters; eighths where the terminal can show them.
fn bar(share: f64, room: usize, charset: Charset) -> String {
    let share = share.clamp(0.0, 1.0);
    match charset {
        Charset::Ascii => "#".repeat((share * room as f64).round() as usize),
        Charset::Unicode => {
            let eighths = (share * room as f64 * 8.0).round() as usize;
            let part = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8];
            let mut text = "█".repeat(eighths / 8);
            if part != ' ' {
                text.push(part);
            }
            text
        }
    }
}

/// `1.84x` with the proper sign, where a digit comes before and no letter follows.
fn times_sign(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let sign = |at: usize| {
        chars[at] == 'x'
            && at > 0
            && chars[at - 1].is_ascii_digit()
            && chars.get(at + 1).is_none_or(|next| matches!(next, ' ' | '.' | ','))
    };
    (0..chars.len()).map(|at| if sign(at) { '×' } else { chars[at] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;
    use proptest::prelude::*;

    #[test]
    fn the_table_of_the_test_comparison() {
        insta::assert_snapshot!(test_data::comparison().table(80, Charset::Ascii));
    }

    #[test]
    fn without_times_there_are_no_shares_of_time() {
        let mut comparison = test_data::comparison();
        comparison.runs.iter_mut().for_each(|run| run.fidelity = "pages".to_owned());
        let table = comparison.table(80, Charset::Ascii);
        let row = table.lines().find(|line| line.starts_with("native-4k")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().skip(1).collect();
        assert!(cells.iter().enumerate().all(|(at, cell)| *cell == "-" || at == cells.len() - 5), "{row}");
        assert!(comparison.runs[0].summary(80, Charset::Ascii).contains("that fidelity pages counts"));
    }

    #[test]
    fn the_table_of_policies() {
        insta::assert_snapshot!(test_data::policies().table(80, Charset::Ascii));
    }

    #[test]
    fn the_table_of_contiguity() {
        insta::assert_snapshot!(test_data::contiguity().table(80, Charset::Ascii));
    }

    #[test]
    fn the_table_of_translation_coherence() {
        insta::assert_snapshot!(test_data::coherence().table(80, Charset::Ascii));
    }

    #[test]
    fn the_table_of_translation_coherence_in_virtual_machines() {
        insta::assert_snapshot!(test_data::coherence_in_vms().table(80, Charset::Ascii));
    }

    #[test]
    fn the_table_of_virtual_machines() {
        insta::assert_snapshot!(test_data::virtual_machines().table(80, Charset::Ascii));
    }

    #[test]
    fn the_summary_of_a_run() {
        let mut run = test_data::comparison().runs.remove(0);
        run.scale = 4;
        run.left_out = vec!["data caches".to_owned(), "memory devices".to_owned()];
        insta::assert_snapshot!(run.summary(80, Charset::Unicode));
    }

    #[test]
    fn ascii_is_ascii() {
        let comparison = test_data::comparison();
        assert!(comparison.table(80, Charset::Ascii).is_ascii());
        assert!(comparison.runs[0].summary(80, Charset::Ascii).is_ascii());
    }

    #[test]
    fn an_empty_comparison_says_so() {
        assert_eq!(Comparison::default().table(80, Charset::Ascii), "No runs: nothing to compare.\n");
    }

    proptest! {
        /// Whatever the names and the numbers, nothing is wider than asked.
        #[test]
        fn every_line_fits(
            design in "[a-z0-9/=,-]{0,120}",
            input in "[a-z -]{0,120}",
            cycles in any::<u64>(),
            instructions in any::<u64>(),
            time in prop_oneof![0.0..1e12f64, Just(1e-15), Just(f64::NAN), Just(0.0)],
            uncertainty in prop::option::of(0.0..1.2f64),
            width in 76usize..140,
        ) {
            let mut comparison = test_data::comparison();
            for run in &mut comparison.runs {
                run.input = input.clone();
                run.cycles = cycles;
                run.instructions = instructions;
                run.scale = 16;
                run.left_out = vec![design.clone()];
            }
            comparison.runs[1].design = design;
            comparison.runs[1].uncertainty = uncertainty.map(|share| {
                crate::Uncertainty { memory_constants: share, ..crate::Uncertainty::default() }
            });
            comparison.runs[1].seconds_simulated = time;
            for charset in [Charset::Ascii, Charset::Unicode] {
                let texts = [comparison.table(width, charset), comparison.runs[1].summary(width, charset)];
                for line in texts.iter().flat_map(|text| text.lines()) {
                    prop_assert!(line.chars().count() <= width, "{} > {width}: {line}", line.chars().count());
                }
            }
        }
    }
}
