//! `#[derive(Parameters)]`.

use crate::attributes::{FieldAttributes, help};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Expr, ExprLit, Field, Fields, Lit, Type};

/// The pieces of the implementation that one field gives.
struct Pieces {
    default: TokenStream,
    describe: TokenStream,
    set: TokenStream,
    get: TokenStream,
    check: TokenStream,
}

pub fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => fields.named.iter().collect(),
            Fields::Unit => Vec::new(),
            Fields::Unnamed(_) => {
                return Err(syn::Error::new_spanned(name, "a parameter's key is its field's name"));
            }
        },
        _ => return Err(syn::Error::new_spanned(name, "Parameters is for structs; enums derive Choice")),
    };
    let pieces = fields.into_iter().map(pieces).collect::<syn::Result<Vec<Pieces>>>()?;
    let defaults = pieces.iter().map(|piece| &piece.default);
    let describes = pieces.iter().map(|piece| &piece.describe);
    let sets = pieces.iter().map(|piece| &piece.set);
    let gets = pieces.iter().map(|piece| &piece.get);
    let checks = pieces.iter().map(|piece| &piece.check);
    Ok(quote! {
        impl ::core::default::Default for #name {
            fn default() -> Self {
                Self { #(#defaults,)* }
            }
        }

        impl ::terrace_model::parameters::Parameters for #name {
            fn describe(
                &self,
                prefix: &str,
                described: &mut ::std::vec::Vec<::terrace_model::parameters::ParameterInfo>,
            ) {
                let _ = (prefix, &described);
                #(#describes)*
            }

            fn set(
                &mut self,
                key: &str,
                text: &str,
            ) -> ::core::result::Result<bool, ::terrace_model::parameters::ParameterError> {
                let _ = (key, text);
                #(#sets)*
                ::core::result::Result::Ok(false)
            }

            fn get(&self, key: &str) -> ::core::option::Option<::std::string::String> {
                let _ = key;
                #(#gets)*
                ::core::option::Option::None
            }

            fn check(
                &self,
            ) -> ::core::result::Result<(), ::terrace_model::parameters::ParameterError> {
                #(#checks)*
                ::core::result::Result::Ok(())
            }
        }
    })
}

fn pieces(field: &Field) -> syn::Result<Pieces> {
    let attributes = FieldAttributes::read(&field.attrs)?;
    let Some(ident) = &field.ident else {
        return Err(syn::Error::new_spanned(field, "a parameter's key is its field's name"));
    };
    let (field_type, field_name) = (&field.ty, ident.unraw().to_string());
    let default = match &attributes.default {
        Some(value) => constant(value, quote!(#field_type), &field_name),
        None => quote!(::core::default::Default::default()),
    };
    let default = quote!(#ident: #default);
    if attributes.section || attributes.flatten {
        let key = attributes.name.clone().unwrap_or(field_name);
        let prefix = if attributes.flatten { String::new() } else { format!("{key}.") };
        return Ok(section(field_type, ident, &prefix, default));
    }
    let key = attributes.name.clone().unwrap_or_else(|| field_name.clone());
    let help = help(&field.attrs);
    if help.is_empty() {
        return Err(syn::Error::new_spanned(field, "a parameter's doc comment is its help; it has none"));
    }
    let FieldAttributes { unit, source, scaled, goal, .. } = &attributes;
    let (unit, source) = (unit.clone().unwrap_or_default(), source.clone().unwrap_or_default());
    let (range, check) = match &attributes.range {
        None => (quote!(::core::option::Option::None), quote!()),
        Some((low, high)) => {
            let bound = quote!(<#field_type as ::terrace_model::parameters::Bounded>::Bound);
            let low = constant(low, bound.clone(), &field_name);
            let high = constant(high, bound, &field_name);
            (
                quote!(::core::option::Option::Some(
                    ::terrace_model::parameters::range_of::<#field_type>(&#low, &#high)
                )),
                quote!(::terrace_model::parameters::check_range(#key, &self.#ident, &#low, &#high)?;),
            )
        }
    };
    Ok(Pieces {
        describe: quote! {
            described.push(::terrace_model::parameters::ParameterInfo {
                range: #range,
                source: #source.to_owned(),
                scaled: #scaled,
                goal: #goal,
                ..::terrace_model::parameters::ParameterInfo::of::<#field_type>(
                    ::std::format!("{prefix}{}", #key),
                    #help,
                    #unit,
                    &self.#ident,
                )
            });
        },
        default,
        set: quote! {
            if key == #key {
                self.#ident = ::terrace_model::parameters::read_value(key, text)?;
                return ::core::result::Result::Ok(true);
            }
        },
        get: quote! {
            if key == #key {
                return ::core::option::Option::Some(
                    ::terrace_model::parameters::ParameterValue::text(&self.#ident),
                );
            }
        },
        check,
    })
}

fn section(field_type: &Type, ident: &syn::Ident, prefix: &str, default: TokenStream) -> Pieces {
    let inner = quote!(<#field_type as ::terrace_model::parameters::Parameters>);
    Pieces {
        default,
        describe: quote!(#inner::describe(&self.#ident, &::std::format!("{prefix}{}", #prefix), described);),
        set: quote! {
            if let ::core::option::Option::Some(rest) = key.strip_prefix(#prefix)
                && #inner::set(&mut self.#ident, rest, text).map_err(|error| error.within(#prefix))?
            {
                return ::core::result::Result::Ok(true);
            }
        },
        get: quote! {
            if let ::core::option::Option::Some(rest) = key.strip_prefix(#prefix)
                && let ::core::option::Option::Some(text) = #inner::get(&self.#ident, rest)
            {
                return ::core::option::Option::Some(text);
            }
        },
        check: quote!(#inner::check(&self.#ident).map_err(|error| error.within(#prefix))?;),
    }
}

/// A value in an attribute: text is read as a user's text would be, anything else is Rust.
fn constant(value: &Expr, of: TokenStream, field: &str) -> TokenStream {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            quote!(::terrace_model::parameters::constant::<#of>(#field, #text))
        }
        other => quote!(#other),
    }
}
