//! A picture of one access: a row for each step, and the cycles from left to right.
//!
//! It is drawn for print: on white, in colours that people with red-green blindness tell apart. Equal contents give equal
//! bytes.

use crate::svg::escaped;
use std::fmt::Write;

const LEFT: f64 = 268.0;
const PLOT: f64 = 400.0;
const RIGHT: f64 = 84.0;
const ROW: f64 = 19.0;
const TOP: f64 = 92.0;

/// Which part of the machine takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The right to the data, and where they lie.
    Translation,
    /// Caches.
    Cache,
    /// Memory and its controller.
    Memory,
    /// The operating system.
    Kernel,
}

impl Stage {
    const ALL: [Stage; 4] = [Stage::Translation, Stage::Cache, Stage::Memory, Stage::Kernel];

    /// Colours of Okabe and Ito.
    const fn colour(self) -> &'static str {
        match self {
            Stage::Translation => "#e69f00",
            Stage::Cache => "#56b4e9",
            Stage::Memory => "#0072b2",
            Stage::Kernel => "#999",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Stage::Translation => "translation and rights",
            Stage::Cache => "caches",
            Stage::Memory => "memory",
            Stage::Kernel => "operating system",
        }
    }
}

/// A step, in cycles from the access's begin.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessStep {
    /// The part of the machine that takes the step.
    pub stage: Stage,
    /// What is looked up or read, and what comes of it.
    pub name: String,
    /// When it begins.
    pub begin: f64,
    /// When its answer is there.
    pub end: f64,
}

/// What is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessPicture {
    /// The headline.
    pub title: String,
    /// What stands below it.
    pub subtitle: String,
    /// The steps from top to bottom.
    pub steps: Vec<AccessStep>,
    /// When the data are there, in cycles.
    pub done: f64,
}

impl AccessPicture {
    /// The picture.
    pub fn to_svg(&self) -> String {
        let last = self.steps.iter().map(|step| step.end).fold(self.done, f64::max).max(1.0);
        let x = |cycles: f64| LEFT + PLOT * cycles / last;
        let bottom = TOP + ROW * self.steps.len() as f64;
        let mut body = String::new();
        text(&mut body, (16.0, 26.0), "title", "start", &self.title);
        text(&mut body, (16.0, 45.0), "note", "start", &self.subtitle);
        self.legend(&mut body);
        let step = tick(last);
        let mut at = 0.0;
        while at <= last {
            let _ = writeln!(body, "<path stroke=\"#ddd\" d=\"M{:.1} {TOP}V{bottom}\"/>", x(at));
            text(&mut body, (x(at), bottom + 15.0), "axis", "middle", &format!("{at}"));
            at += step;
        }
        text(&mut body, (LEFT + PLOT, bottom + 30.0), "axis", "end", "cycles");
        for (row, AccessStep { stage, name, begin, end }) in self.steps.iter().enumerate() {
            let y = TOP + ROW * row as f64;
            text(&mut body, (LEFT - 8.0, y + 13.5), "row", "end", name);
            // What takes no time is a stroke.
            let wide = (x(*end) - x(*begin)).max(1.5);
            let _ = writeln!(
                body,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"13\" fill=\"{}\"/>",
                x(*begin),
                y + 3.0,
                stage.colour()
            );
            text(
                &mut body,
                (x(*end).max(x(*begin) + 1.5) + 5.0, y + 13.5),
                "axis",
                "start",
                &cycles(end - begin),
            );
        }
        let _ = writeln!(
            body,
            "<path stroke=\"#222\" stroke-width=\"1.4\" d=\"M{:.1} {}V{bottom}\"/>",
            x(self.done),
            TOP - 4.0
        );
        let said = format!("the data are there: {}", cycles(self.done));
        text(&mut body, (x(self.done) + 4.0, TOP - 8.0), "row", "end", &said);
        let (width, height) = (LEFT + PLOT + RIGHT, bottom + 40.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <style>text{{font-family:Helvetica,Arial,sans-serif;fill:#222}}.title{{font-size:16px;font-weight:bold}}\
             .note{{font-size:12px;fill:#444}}.row{{font-size:12px}}.axis{{font-size:10.5px;fill:#555}}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }

    /// Squares and words below the headline, for those who take a step.
    fn legend(&self, out: &mut String) {
        let mut x = 16.0;
        for stage in Stage::ALL.into_iter().filter(|stage| self.steps.iter().any(|step| step.stage == *stage))
        {
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"56\" width=\"11\" height=\"11\" fill=\"{}\"/>",
                stage.colour()
            );
            text(out, (x + 16.0, 66.0), "axis", "start", stage.name());
            x += 30.0 + 6.0 * stage.name().len() as f64;
        }
    }
}

/// A number of cycles: whole where it is.
fn cycles(cycles: f64) -> String {
    if (cycles - cycles.round()).abs() < 0.05 { format!("{cycles:.0}") } else { format!("{cycles:.1}") }
}

/// The distance of marks on the axis: 1, 2 or 5 times a power of ten, six marks at most.
fn tick(last: f64) -> f64 {
    let mut step: f64 = 1.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if last / step <= 6.0 {
            break;
        }
        step *= factor;
    }
    step
}

fn text(out: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
    let escaped = escaped(text);
    let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{escaped}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_bar_as_long_as_it_takes() {
        let step = |stage, name: &str, begin, end| AccessStep { stage, name: name.to_owned(), begin, end };
        let picture = AccessPicture {
            title: "native-4k on a<b".to_owned(),
            subtitle: "a load".to_owned(),
            steps: vec![
                step(Stage::Translation, "TLBs: miss", 0.0, 0.0),
                step(Stage::Cache, "L1: miss", 0.0, 50.0),
                step(Stage::Memory, "memory", 50.0, 100.0),
            ],
            done: 100.0,
        };
        let svg = picture.to_svg();
        assert!(svg.contains("native-4k on a&lt;b") && svg.contains("the data are there: 100"), "{svg}");
        for (stage, wide) in [(Stage::Translation, "1.5"), (Stage::Cache, "200.0"), (Stage::Memory, "200.0")]
        {
            let bar = format!("width=\"{wide}\" height=\"13\" fill=\"{}\"", stage.colour());
            assert!(svg.contains(&bar), "{bar}\n{svg}");
        }
        assert!(!svg.contains("operating system"), "nobody of it took a step");
        assert_eq!(svg, picture.to_svg());
    }
}
