//! `#[derive(Parameters)]`.

use crate::attributes::{ContainerAttributes, FieldAttributes, help, serde};
use crate::choice::kebab;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DataEnum, DeriveInput, Expr, ExprLit, Field, Fields, Ident, Lit, Type, Variant};

/// The pieces of the implementation that one field gives.
struct Pieces {
    default: TokenStream,
    declare: TokenStream,
    set: TokenStream,
    get: TokenStream,
    check: TokenStream,
    element: TokenStream,
}

/// How a field is reached.
struct Place {
    /// In the struct that is read.
    read: TokenStream,
    /// The values that stand for the defaults, as an option.
    values: TokenStream,
    /// The kind of its table that has the field.
    only_with: String,
    /// A file gives its value.
    in_file: bool,
}

pub fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let container = ContainerAttributes::read(&input.attrs)?;
    let fields: Vec<&Field> = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => fields.named.iter().collect(),
            Fields::Unit => Vec::new(),
            Fields::Unnamed(_) => {
                return Err(syn::Error::new_spanned(name, "a parameter's key is its field's name"));
            }
        },
        Data::Enum(data) => match (container.table, &container.tag) {
            (true, Some(tag)) => return tagged(name, data, tag, &help(&input.attrs)),
            _ => {
                return Err(syn::Error::new_spanned(
                    name,
                    "an enum is a table with #[serde(tag = \"…\")], or derives Choice",
                ));
            }
        },
        Data::Union(_) => return Err(syn::Error::new_spanned(name, "Parameters is for structs and enums")),
    };
    let place = |ident: &Ident| Place {
        read: quote!(&self.#ident),
        values: quote!(values.map(|values| &values.#ident)),
        only_with: String::new(),
        in_file: container.table,
    };
    let pieces =
        fields.into_iter().map(|field| pieces(field, place)).collect::<syn::Result<Vec<Pieces>>>()?;
    let declared = declared(name, &pieces, container.table);
    if container.table {
        return Ok(declared);
    }
    let defaults = pieces.iter().map(|piece| &piece.default);
    let sets = pieces.iter().map(|piece| &piece.set);
    let gets = pieces.iter().map(|piece| &piece.get);
    Ok(quote! {
        #declared

        impl ::core::default::Default for #name {
            fn default() -> Self {
                Self { #(#defaults,)* }
            }
        }

        impl ::terrace_model::parameters::Parameters for #name {
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
        }
    })
}

fn declared(name: &Ident, pieces: &[Pieces], in_file: bool) -> TokenStream {
    let declares = pieces.iter().map(|piece| &piece.declare);
    let checks = pieces.iter().map(|piece| &piece.check);
    let elements = pieces.iter().map(|piece| &piece.element);
    // Without values the defaults are those of the declaration.
    let values = if in_file {
        quote!()
    } else {
        quote! {
            let own = <Self as ::core::default::Default>::default();
            let values = ::core::option::Option::Some(values.unwrap_or(&own));
        }
    };
    quote! {
        impl ::terrace_model::parameters::Declared for #name {
            fn declare(
                values: ::core::option::Option<&Self>,
                prefix: &str,
                declared: &mut ::std::vec::Vec<::terrace_model::parameters::ParameterInfo>,
            ) {
                #values
                let _ = (values, prefix, &declared);
                #(#declares)*
            }

            fn check(
                &self,
            ) -> ::core::result::Result<(), ::terrace_model::parameters::ParameterError> {
                #(#checks)*
                ::core::result::Result::Ok(())
            }

            #(#elements)*
        }
    }
}

/// A table whose key `tag` says which of a few kinds it is of.
fn tagged(name: &Ident, data: &DataEnum, tag: &str, explanation: &str) -> syn::Result<TokenStream> {
    let (mut kinds, mut helps, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut declares, mut checks) = (Vec::new(), Vec::new());
    for variant in &data.variants {
        let of = &variant.ident;
        let kind = kind(variant)?;
        let fields: Vec<&Field> = match &variant.fields {
            Fields::Named(fields) => fields.named.iter().collect(),
            Fields::Unit => Vec::new(),
            Fields::Unnamed(_) => {
                return Err(syn::Error::new_spanned(variant, "a parameter's key is its field's name"));
            }
        };
        let place = |ident: &Ident| Place {
            read: quote!(#ident),
            values: quote!(values.and_then(|values| match values {
                #name::#of { #ident, .. } => ::core::option::Option::Some(#ident),
                #[allow(unreachable_patterns)]
                _ => ::core::option::Option::None,
            })),
            only_with: kind.clone(),
            in_file: true,
        };
        let idents: Vec<_> = fields.iter().filter_map(|field| field.ident.as_ref()).collect();
        let pieces = fields.iter().map(|field| pieces(field, place)).collect::<syn::Result<Vec<Pieces>>>()?;
        let of_fields = pieces.iter().map(|piece| &piece.check);
        checks.push(quote!(#name::#of { #(#idents),* } => { let _ = (#(&#idents,)*); #(#of_fields)* }));
        declares.extend(pieces.into_iter().map(|piece| piece.declare));
        names.push(quote!(#name::#of { .. } => #kind));
        helps.push(help(&variant.attrs));
        kinds.push(kind);
    }
    Ok(quote! {
        impl ::terrace_model::parameters::Declared for #name {
            fn declare(
                values: ::core::option::Option<&Self>,
                prefix: &str,
                declared: &mut ::std::vec::Vec<::terrace_model::parameters::ParameterInfo>,
            ) {
                let kind = values.map_or("", |values| match values { #(#names,)* });
                declared.push(::terrace_model::parameters::ParameterInfo::kinds(
                    ::std::format!("{prefix}{}", #tag),
                    #explanation,
                    kind,
                    &[#((#kinds, #helps)),*],
                ));
                #(#declares)*
            }

            fn check(
                &self,
            ) -> ::core::result::Result<(), ::terrace_model::parameters::ParameterError> {
                match self { #(#checks)* }
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// What a file calls a variant.
fn kind(variant: &Variant) -> syn::Result<String> {
    let renamed = serde(&variant.attrs)?.into_iter().find_map(|(key, name)| name.filter(|_| key == "rename"));
    Ok(renamed.unwrap_or_else(|| kebab(&variant.ident.to_string())))
}

fn pieces(field: &Field, place: impl Fn(&Ident) -> Place) -> syn::Result<Pieces> {
    let attributes = FieldAttributes::read(&field.attrs)?;
    let Some(ident) = &field.ident else {
        return Err(syn::Error::new_spanned(field, "a parameter's key is its field's name"));
    };
    let (field_type, field_name) = (&field.ty, ident.unraw().to_string());
    let Place { read, values, only_with, in_file } = place(ident);
    let default = match &attributes.default {
        Some(value) => constant(value, quote!(#field_type), &field_name),
        None => quote!(::core::default::Default::default()),
    };
    let default = quote!(#ident: #default);
    let empty = || quote!();
    if attributes.skip {
        return Ok(Pieces {
            default,
            declare: empty(),
            set: empty(),
            get: empty(),
            check: empty(),
            element: empty(),
        });
    }
    // Values that stand for the defaults, else what a file leaves out.
    let values = match &attributes.file_default {
        Some(default) if in_file => quote! {
            let own: #field_type = #default;
            let values = ::core::option::Option::Some(#values.unwrap_or(&own));
        },
        _ => quote!(let values = #values;),
    };
    if attributes.section || attributes.flatten {
        let key = attributes.name.clone().unwrap_or(field_name);
        let prefix = if attributes.flatten { String::new() } else { format!("{key}.") };
        return Ok(section(field_type, ident, &prefix, default, &values, &read));
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
                quote!(::terrace_model::parameters::check_range(#key, #read, &#low, &#high)?;),
            )
        }
    };
    Ok(Pieces {
        declare: quote! {
            {
                #values
                let values: ::core::option::Option<&#field_type> = values;
                let written = ::terrace_model::parameters::Written {
                    key: #key,
                    help: #help,
                    unit: #unit,
                    source: #source,
                    scaled: #scaled,
                    goal: #goal,
                    only_with: #only_with,
                };
                declared.push(::terrace_model::parameters::declaration(prefix, &written, #range, values));
            }
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
        element: if attributes.element {
            quote! {
                fn element(&self) -> ::core::option::Option<&str> {
                    ::core::option::Option::Some(&self.#ident)
                }
            }
        } else {
            empty()
        },
    })
}

fn section(
    field_type: &Type,
    ident: &Ident,
    prefix: &str,
    default: TokenStream,
    values: &TokenStream,
    read: &TokenStream,
) -> Pieces {
    let inner = quote!(<#field_type as ::terrace_model::parameters::Parameters>);
    let declared = quote!(<#field_type as ::terrace_model::parameters::Declared>);
    Pieces {
        default,
        declare: quote! {
            {
                #values
                #declared::declare(values, &::std::format!("{prefix}{}", #prefix), declared);
            }
        },
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
        check: quote!(#declared::check(#read).map_err(|error| error.within(#prefix))?;),
        element: quote!(),
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
