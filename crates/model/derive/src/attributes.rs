//! What stands above a field or a variant.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Attribute, Expr, ExprLit, ExprRange, Lit, LitStr, Meta, Path, RangeLimits, Token};

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
    /// No parameter.
    pub skip: bool,
    /// What keys call this table as an element of a list.
    pub element: bool,
    /// The value where a file gives none, as serde has it.
    pub file_default: Option<TokenStream>,
}

/// The attributes of a struct or an enum.
#[derive(Default)]
pub struct ContainerAttributes {
    /// Read from a file by serde; a field without a default has to be given.
    pub table: bool,
    /// The key that names the variant of an enum.
    pub tag: Option<String>,
}

impl ContainerAttributes {
    /// Reads `#[parameter(table)]` and the attributes for serde.
    pub fn read(attributes: &[Attribute]) -> syn::Result<ContainerAttributes> {
        let mut read = ContainerAttributes::default();
        for attribute in attributes {
            if attribute.path().is_ident("parameter") {
                attribute.parse_nested_meta(|meta| {
                    read.table = meta.path.is_ident("table");
                    if read.table { Ok(()) } else { Err(meta.error("expected table")) }
                })?;
            }
        }
        read.tag = serde(attributes)?.into_iter().find_map(|(key, value)| match value {
            Some(value) if key == "tag" => Some(value),
            _ => None,
        });
        Ok(read)
    }
}

/// The keys of the attributes for serde, with their texts.
pub fn serde(attributes: &[Attribute]) -> syn::Result<Vec<(String, Option<String>)>> {
    let mut found = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            let value = if meta.input.peek(Token![=]) { Some(meta.value()?.parse::<Expr>()?) } else { None };
            let text = value.and_then(|value| match value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
                _ => None,
            });
            found.push((key, text));
            Ok(())
        })?;
    }
    Ok(found)
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
                    "skip" => read.skip = true,
                    "element" => read.element = true,
                    _ => return Err(meta.error(EXPECTED)),
                }
                let separated = meta.input.is_empty() || meta.input.peek(Token![,]);
                if separated { Ok(()) } else { Err(meta.error("expected a comma before the next attribute")) }
            })?;
        }
        for (key, value) in serde(attributes)? {
            match (key.as_str(), value) {
                ("rename", Some(name)) => read.name = read.name.or(Some(name)),
                ("default", None) => read.file_default = Some(quote!(::core::default::Default::default())),
                ("default", Some(path)) => {
                    let path: Path = syn::parse_str(&path)?;
                    read.file_default = Some(quote!(#path()));
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

const EXPECTED: &str =
    "expected one of name, default, range, unit, source, scaled, goal, section, flatten, skip, element";

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
