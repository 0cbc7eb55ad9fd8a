//! The derives behind `terrace_model::parameters`, which documents them.
//!
//! `Parameters` turns a struct into a set of declared parameters, `Choice` turns an enum without fields into a
//! parameter's value that is one of a few words.

mod attributes;
mod choice;
mod parameters;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Default` and `terrace_model::parameters::Parameters` for a struct with named fields; with
/// `#[parameter(table)]` only `terrace_model::parameters::Declared`.
#[proc_macro_derive(Parameters, attributes(parameter))]
pub fn derive_parameters(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    parameters::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `terrace_model::parameters::ParameterValue` for an enum without fields.
#[proc_macro_derive(Choice, attributes(choice))]
pub fn derive_choice(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    choice::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
