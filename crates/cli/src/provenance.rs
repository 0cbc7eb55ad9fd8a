//! Where and when a result came to be.

use crate::output;

/// The command line as it was given, for people to repeat.
pub fn own_command() -> String {
    let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    output::shell_join(std::iter::once("terrace".to_owned()).chain(arguments))
}

/// Today's date in UTC, `YYYY-MM-DD`.
pub fn today() -> String {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    date_of_day(since_epoch.as_secs() / 86_400)
}

/// The civil date of a day counted from 1970-01-01.
fn date_of_day(mut day: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_by_hand() {
        let dates: Vec<String> = [0, 58, 59, 11_016, 20_513].map(date_of_day).into();
        assert_eq!(dates, ["1970-01-01", "1970-02-28", "1970-03-01", "2000-02-29", "2026-03-01"]);
    }
}
