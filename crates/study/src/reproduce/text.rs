//! Verdicts as text.

use super::Reproduction;
use std::collections::BTreeSet;
use std::fmt::Write;
use terrace_model::text;
use terrace_report::machine_in_words;
use terrace_sim::design::claims::ClaimKind;

impl Reproduction {
    /// Every claim, published beside ours, in 80 columns, and how many hold.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut source = "";
        for claim in &self.claims {
            if claim.source != source {
                source = &claim.source;
                for line in text::wrap(source, 80) {
                    let _ = writeln!(text, "{line}");
                }
                text.push('\n');
            }
            let scales: BTreeSet<u32> =
                claim.runs.iter().map(|run| run.scale).filter(|&scale| scale > 1).collect();
            let scales: Vec<String> = scales.iter().map(|scale| format!("scale 1/{scale}")).collect();
            let around = claim.around.as_ref().map(|around| format!(" {}", around.in_words()));
            let around = around.unwrap_or_default();
            let mut rows = vec![
                ("claim", format!("{} ({}, section {})", claim.id, kind_word(claim.kind), claim.section)),
                ("states", claim.statement.clone()),
                ("published", claim.published.clone()),
                ("ours", [vec![claim.ours.clone() + &around], scales].concat().join(", ")),
                ("verdict", claim.verdict.name().to_owned()),
                ("because", claim.reason.clone()),
            ];
            rows.retain(|(_, content)| !content.is_empty());
            text += &text::two_columns(rows.iter().map(|(name, content)| (*name, content.as_str())));
            text.push('\n');
        }
        for (name, tiers) in &self.machines {
            let machine = machine_in_words(name, tiers);
            text += &text::hanging(
                "",
                &format!("Machine {machine} (reads, idle, before a run's settings and scale)."),
                78,
            );
        }
        if !self.machines.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{} of {} claims reproduced, {} not reproduced, {} not evaluated",
            self.reproduced,
            self.claims.len() - self.fitted,
            self.not_reproduced,
            self.not_evaluated
        );
        if self.fitted > 0 {
            let _ =
                writeln!(text, "{} more: constants were fitted to them, so they are not judged", self.fitted);
        }
        if self.reused > 0 {
            let _ = writeln!(
                text,
                "{} of {} runs were made before and kept; --fresh makes them anew",
                self.reused, self.runs
            );
        }
        text
    }
}

fn kind_word(kind: ClaimKind) -> &'static str {
    match kind {
        ClaimKind::Value => "value",
        ClaimKind::Order => "order",
        ClaimKind::Shape => "shape",
    }
}
