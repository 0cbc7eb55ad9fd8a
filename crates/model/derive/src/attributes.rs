//! What stands above a field or a variant.

use syn::ext::IdentExt;
use syn::{Attribute, Expr, ExprLit, ExprRange, Lit, LitStr, Meta, RangeLimits, Token};

/// The attributes of a field.
#[derive(Default)]
pub struct FieldAttributes {
    /// The key where it is not the field's name.
    pub name: Option<String>,
    /// The value where none is given.
    pub default: Option<Expr>,
    /// The smallest and the largest value.
    pub range: Option<(Expr, Expr)>,
    /// What a number counts.
    pub unit: Option<String>,
    /// Where the default comes from.
    pub source: Option<String>,
    /// Divided with the machine.
    pub scaled: bool,
    /// Set by the user's goal.
    pub goal: bool,
    /// A struct of parameters whose keys follow this one's and a dot.
    pub section: bool,
    /// A struct of parameters whose keys stand beside the others.
    pub flatten: bool,
}

impl FieldAttributes {
    /// Reads `#[parameter(…)]`, which may stand above a field more than once.
    pub fn read(attributes: &[Attribute]) -> syn::Result<FieldAttributes> {
        let mut read = FieldAttributes::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("parameter")) {
            attribute.parse_nested_meta(|meta| {
                let Some(key) = meta.path.get_ident().map(|key| key.unraw().to_string()) else {
                    return Err(meta.error(EXPECTED));
                };
                match key.as_str() {
                    "name" => read.name = Some(meta.value()?.parse::<LitStr>()?.value()),
                    "unit" => read.unit = Some(meta.value()?.parse::<LitStr>()?.value()),
                    "source" => read.source = Some(meta.value()?.parse::<LitStr>()?.value()),
                    "default" => read.default = Some(meta.value()?.parse()?),
                    "range" => read.range = Some(ends(&meta.value()?.parse()?)?),
                    "scaled" => read.scaled = true,
                    "goal" => read.goal = true,
                    "section" => read.section = true,
                    "flatten" => read.flatten = true,
                    _ => return Err(meta.error(EXPECTED)),
                }
                let separated = meta.input.is_empty() || meta.input.peek(Token![,]);
                if separated { Ok(()) } else { Err(meta.error("expected a comma before the next attribute")) }
            })?;
        }
        Ok(read)
    }
}

const EXPECTED: &str = "expected one of name, default, range, unit, source, scaled, goal, section, flatten";

/// Both ends of `low..=high`.
fn ends(range: &Expr) -> syn::Result<(Expr, Expr)> {
    match range {
        Expr::Range(ExprRange {
            start: Some(low), end: Some(high), limits: RangeLimits::Closed(_), ..
        }) => Ok(((**low).clone(), (**high).clone())),
        other => Err(syn::Error::new_spanned(other, "expected a range with both ends, such as 0.0..=1.0")),
    }
}

/// The text of the doc comment, its lines joined.
pub fn help(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let Meta::NameValue(pair) = &attribute.meta
            && let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value
        {
            lines.push(text.value().trim().to_owned());
        }
    }
    lines.join(" ").trim().to_owned()
}
