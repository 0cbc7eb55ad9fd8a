//! `#[derive(Choice)]`.

use crate::attributes::help;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Fields, LitStr};

pub fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new_spanned(name, "Choice is for enums; structs derive Parameters"));
    };
    let (mut idents, mut words, mut helps) = (Vec::new(), Vec::new(), Vec::new());
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(syn::Error::new_spanned(variant, "a choice is one word, so it can have no fields"));
        }
        words.push(word(&variant.attrs)?.unwrap_or_else(|| kebab(&variant.ident.to_string())));
        helps.push(help(&variant.attrs));
        idents.push(&variant.ident);
    }
    Ok(quote! {
        impl ::terrace_model::parameters::ParameterValue for #name {
            const KIND: ::terrace_model::parameters::Kind = ::terrace_model::parameters::Kind::Choice;

            fn read(text: &str) -> ::core::result::Result<Self, ::std::string::String> {
                match text {
                    #(#words => ::core::result::Result::Ok(#name::#idents),)*
                    _ => ::core::result::Result::Err(
                        ::terrace_model::parameters::expected_choice(text, &[#(#words),*]),
                    ),
                }
            }

            fn text(&self) -> ::std::string::String {
                match self {
                    #(#name::#idents => #words,)*
                }
                .to_owned()
            }

            fn choices() -> ::std::vec::Vec<::terrace_model::parameters::ChoiceInfo> {
                [#((#words, #helps)),*]
                    .map(|(name, help)| ::terrace_model::parameters::ChoiceInfo {
                        name: name.to_owned(),
                        help: help.to_owned(),
                    })
                    .to_vec()
            }
        }
    })
}

/// The word in `#[choice("word")]`.
fn word(attributes: &[Attribute]) -> syn::Result<Option<String>> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("choice"));
    attribute.map(|attribute| Ok(attribute.parse_args::<LitStr>()?.value())).transpose()
}

/// `DeferMadvise` as `defer-madvise`.
pub fn kebab(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
