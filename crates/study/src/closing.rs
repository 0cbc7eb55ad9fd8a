//! How the text of an answer ends.

use terrace_model::text;

/// Each remark, in lines of 78 columns.
pub(crate) fn remarks(remarks: &[String]) -> String {
    remarks.iter().map(|remark| text::hanging("- ", remark, 76)).collect()
}

/// The remarks, and the command that shows an advice, where there is one.
pub(crate) fn of_advice(said: &[String], command: Option<&str>) -> String {
    let command = command.map(|command| format!("\n{}", text::command("See it: ", command, 79)));
    remarks(said) + &command.unwrap_or_default()
}
