//! Bounds as people write them: shares of time, and limits of tiers.

use std::str::FromStr;
use terrace_model::Bytes;

/// A share; none for no bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub Option<f64>);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        if text == "none" {
            return Ok(Share(None));
        }
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
        match number.trim().parse::<f64>() {
            Ok(share) if share.is_finite() && share > 0.0 => Ok(Share(Some(share / unit))),
            _ => Err(format!("\"{text}\" is not a share above 0, such as 3% or 0.03, nor `none`")),
        }
    }
}

/// The limit of a tier, such as `dram=4GiB`.
///
/// # Errors
/// The text has no `=`, or what follows is no size.
pub fn limit(text: &str) -> Result<(String, Bytes), String> {
    let (tier, size) =
        text.split_once('=').ok_or_else(|| format!("\"{text}\" is not TIER=SIZE, such as dram=4GiB"))?;
    Ok((tier.trim().to_owned(), size.trim().parse().map_err(|error| format!("{error}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_or_per_cent() {
        let share = |text: &str| text.parse::<Share>();
        assert_eq!(share("3%"), Ok(Share(Some(0.03))));
        assert_eq!(share("0.03"), Ok(Share(Some(0.03))));
        assert_eq!(share("250 %"), Ok(Share(Some(2.5))), "of one core, on several");
        assert_eq!(share("none"), Ok(Share(None)));
        for refused in ["", "0", "-1%", "inf", "nan", "3%%", "some"] {
            assert!(share(refused).unwrap_err().contains("is not a share above 0"), "{refused}");
        }
    }

    #[test]
    fn limits_name_a_tier_and_a_size() {
        assert_eq!(limit("dram = 4GiB"), Ok(("dram".to_owned(), Bytes::gib(4))));
        assert!(limit("dram").unwrap_err().contains("is not TIER=SIZE"));
        assert!(limit("dram=much").is_err());
    }
}
