//! Shares and prices as people spell them.

/// `slow=0.33`.
pub fn parse_price(text: &str) -> Result<(String, f64), String> {
    let error = || format!("\"{text}\" is not TIER=PRICE, such as slow=0.33");
    let (tier, price) = text.split_once('=').ok_or_else(error)?;
    let price: f64 = price.trim().parse().map_err(|_| error())?;
    if tier.trim().is_empty() || !(price.is_finite() && price >= 0.0) {
        return Err(error());
    }
    Ok((tier.trim().to_owned(), price))
}

/// `3%`, `0.03`: a share of 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let error = || format!("\"{text}\" is not a share, such as 3% or 0.03");
    let value = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| error())? / 100.0,
        None => text.trim().parse::<f64>().map_err(|_| error())?,
    };
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(format!("{} and at most 100%", error())) }
}

/// A share of at least a little: no machine without fast memory has page tables.
pub fn parse_fast_share(text: &str) -> Result<f64, String> {
    match parse_share(text)? {
        share if share > 0.0 => Ok(share),
        _ => Err("some memory has to be fast, if only for page tables; 1% is little".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_prices_have_their_spellings() {
        assert_eq!(parse_share("3%"), Ok(0.03));
        assert_eq!(parse_share("0.5"), Ok(0.5));
        for text in ["", "x", "101%", "-1%", "nan"] {
            assert!(parse_share(text).unwrap_err().contains("such as 3%"), "{text}");
        }
        assert!(parse_fast_share("0%").unwrap_err().contains("page tables"));
        assert_eq!(parse_price("slow=0.33"), Ok(("slow".to_owned(), 0.33)));
        for text in ["slow", "=1", "slow=-1", "slow=inf", "slow=cheap"] {
            assert!(parse_price(text).unwrap_err().contains("TIER=PRICE"), "{text}");
        }
    }
}
