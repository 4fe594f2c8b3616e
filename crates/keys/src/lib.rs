//! Derives for structs whose fields are the keys of a row: each is declared once, and what follows
//! from it is made here.
//!
//! ```ignore
//! #[derive(Counts, Keys, serde::Serialize)]
//! #[key(from = Engine)]
//! struct Row {
//!     /// Kilometres driven.
//!     #[key(count, "km", group = "the journey", from = it.odometer())]
//!     driven: u64,
//!     /// What is left in the tank.
//!     #[key(state, "l", from = it.tank.level)]
//!     fuel: f64,
//! }
//! ```
//!
//! The attribute of a field has, in this order: its kind (`count`, which grows, so that parts of a
//! run are differences; `state`, a value at a moment; `ratio`, which is made of others;
//! `condition`, what the run was of; `flattened`, whose contents are keys), a unit, whether a
//! sampled stream leaves an estimate of it (`estimated`) or the stream alone decides it
//! (`of_stream`), a `group` that begins with the field, the heading of its `column` in tables, or
//! of one that only `wide` tables have, and the expression that it is filled `from`, of `it`, which
//! is the struct that the attribute of the row names.

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Ident, Lit, LitStr, Meta, Result, Token};

/// Derives `superpage_pages::Counts`: fields that are counts are added and subtracted, all others
/// stay. A field without an attribute is a count.
#[proc_macro_derive(Counts, attributes(key))]
pub fn counts(input: TokenStream) -> TokenStream {
    made(input, of_counts)
}

/// Derives `superpage_report::Keys`, for which each field must have a documentation and an
/// attribute `key`; and, if the struct has the attribute `key(from = TYPE)`, a function `of(&TYPE)`
/// that fills each field from its expression, or by default if it has none.
#[proc_macro_derive(Keys, attributes(key))]
pub fn keys(input: TokenStream) -> TokenStream {
    made(input, of_keys)
}

fn made(input: TokenStream, make: fn(&DeriveInput, &[Key]) -> Result<Tokens>) -> TokenStream {
    let made = syn::parse::<DeriveInput>(input).and_then(|input| make(&input, &fields(&input)?));
    made.unwrap_or_else(|error| error.into_compile_error()).into()
}

/// A field as its attributes declare it.
struct Key {
    name: Ident,
    doc: String,
    attribute: Option<Declared>,
}

/// The contents of its attribute `key`.
struct Declared {
    kind: Ident,
    /// One of [`SAMPLES`], or `exact`.
    sample: String,
    unit: Option<LitStr>,
    group: Option<LitStr>,
    /// The heading of its column in tables, and whether only wide ones have it.
    column: Option<(LitStr, bool)>,
    from: Option<Tokens>,
}

const KINDS: [&str; 5] = ["count", "state", "ratio", "condition", FLATTENED];
/// The kind of a field that is no key, and whose contents are.
const FLATTENED: &str = "flattened";
const SAMPLES: [&str; 2] = ["estimated", "of_stream"];

impl Declared {
    fn parse(input: ParseStream<'_>) -> Result<Declared> {
        let kind: Ident = input.parse()?;
        if !KINDS.iter().any(|known| kind == known) {
            return Err(Error::new(kind.span(), format!("expected one of {}", KINDS.join(", "))));
        }
        let mut declared = Declared { kind, sample: "exact".into(), unit: None, group: None, column: None, from: None };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.peek(LitStr) {
                declared.unit = Some(input.parse()?);
                continue;
            }
            let name: Ident = input.parse()?;
            if SAMPLES.iter().any(|known| name == known) {
                declared.sample = name.to_string();
                continue;
            }
            input.parse::<Token![=]>()?;
            match name.to_string().as_str() {
                "group" => declared.group = Some(input.parse()?),
                "column" | "wide" if declared.column.is_some() => {
                    return Err(Error::new(name.span(), "it has a column already"));
                }
                "column" => declared.column = Some((input.parse()?, false)),
                "wide" => declared.column = Some((input.parse()?, true)),
                // An expression has commas of its own.
                "from" => declared.from = Some(input.parse()?),
                _ => {
                    return Err(Error::new(
                        name.span(),
                        "expected a unit, estimated, of_stream, or `from = EXPRESSION` or a text for group, column or wide",
                    ));
                }
            }
        }
        Ok(declared)
    }
}

fn of_name<'a>(attributes: &'a [Attribute], name: &str) -> impl Iterator<Item = &'a Attribute> {
    attributes.iter().filter(move |attribute| attribute.path().is_ident(name))
}

/// The lines of a documentation, joined.
fn doc(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
            _ => None,
        },
        _ => None,
    };
    of_name(attributes, "doc").filter_map(line).collect::<Vec<_>>().join(" ")
}

fn fields(input: &DeriveInput) -> Result<Vec<Key>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(Span::call_site(), "only a struct has keys"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(Span::call_site(), "only fields with names are keys"));
    };
    let key = |field: &Field| {
        let attribute = of_name(&field.attrs, "key").next();
        let attribute = attribute.map(|attribute| attribute.parse_args_with(Declared::parse)).transpose()?;
        Ok(Key { name: field.ident.clone().expect("a name"), doc: doc(&field.attrs), attribute })
    };
    fields.named.iter().map(key).collect()
}

fn of_counts(input: &DeriveInput, keys: &[Key]) -> Result<Tokens> {
    let combined = |how: &str| {
        let how = format_ident!("{how}");
        keys.iter().map(move |Key { name, attribute, .. }| match attribute {
            Some(declared) if declared.kind != "count" => quote!(#name: ::core::clone::Clone::clone(&self.#name)),
            _ => quote!(#name: ::superpage_pages::Counts::#how(&self.#name, &other.#name)),
        })
    };
    let (name, plus, since) = (&input.ident, combined("plus"), combined("since"));
    Ok(quote! {
        impl ::superpage_pages::Counts for #name {
            fn plus(&self, other: &Self) -> Self {
                Self { #(#plus),* }
            }

            fn since(&self, other: &Self) -> Self {
                Self { #(#since),* }
            }
        }
    })
}

fn of_keys(input: &DeriveInput, keys: &[Key]) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else { unreachable!("fields were read") };
    let mut group = String::new();
    let (mut schema, mut filled) = (Vec::new(), Vec::new());
    for (Key { name, doc, attribute }, Field { ty, .. }) in keys.iter().zip(&data.fields) {
        let Some(Declared { kind, sample, unit, group: begins, column, from }) = attribute else {
            return Err(Error::new(name.span(), format!("{name} has no attribute key: `#[key(count, \"cycles\")]`")));
        };
        if doc.is_empty() {
            return Err(Error::new(name.span(), format!("{name} has no documentation")));
        }
        if let Some(begins) = begins {
            group = begins.value();
        }
        let key = name.to_string();
        let sample = format_ident!("{}", sample.split('_').map(capital).collect::<String>());
        let named = Ident::new(&capital(&kind.to_string()), kind.span());
        let unit = unit.as_ref().map_or(String::new(), LitStr::value);
        let (column, wide) = column.as_ref().map_or((String::new(), false), |(column, wide)| (column.value(), *wide));
        if kind != FLATTENED {
            schema.push(quote! {
            ::superpage_report::Key {
                name: #key,
                doc: #doc,
                unit: #unit,
                kind: ::superpage_report::KeyKind::#named,
                sample: ::superpage_report::InSample::#sample,
                group: #group,
                column: #column,
                wide: #wide,
                stored: <#ty as ::superpage_report::Keys>::STORED,
                keys: <#ty as ::superpage_report::Keys>::KEYS,
            }
            });
        }
        filled.push(match from {
            Some(from) => quote!(#name: #from),
            None => quote!(#name: ::core::default::Default::default()),
        });
    }
    let name = &input.ident;
    let of = |attribute: &Attribute| {
        let parse = |input: ParseStream<'_>| {
            let from: Ident = input.parse()?;
            if from != "from" {
                return Err(Error::new(from.span(), "expected `from = TYPE`"));
            }
            input.parse::<Token![=]>()?;
            input.parse::<Tokens>()
        };
        parse.parse2(attribute.meta.require_list()?.tokens.clone())
    };
    let of = of_name(&input.attrs, "key").next().map(of).transpose()?.map(|source| {
        quote! {
            impl #name {
                /// Filled from this.
                pub(crate) fn of(it: &#source) -> #name {
                    #name { #(#filled),* }
                }
            }
        }
    });
    Ok(quote! {
        impl ::superpage_report::Keys for #name {
            const KEYS: &'static [::superpage_report::Key] = &[#(#schema),*];
        }
        #of
    })
}

/// A word that begins with a capital.
fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
