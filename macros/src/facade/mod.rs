//! `#[facade]`: the boxed side of an engine trait.
//!
//! Three stages: [`check`] and [`types`] refuse what cannot be erased, [`ast`] reads what is left into
//! the few facts that matter, [`expand`] writes the twin. [`fallback`] takes the place of the
//! last two where there is something to refuse.

mod ast;
mod check;
mod expand;
mod fallback;
mod types;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemTrait};

/// The trait itself, unchanged, and its twin or the reasons why it has none.
pub(crate) fn facade(arguments: &TokenStream, item: &TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        let error = Error::new_spanned(arguments, "`#[facade]` takes no arguments; remove them");
        let error = error.into_compile_error();
        return quote! { #item #error };
    }
    let rest = match syn::parse2::<ItemTrait>(item.clone()) {
        Err(error) => error.into_compile_error(),
        Ok(item) => match check::check(&item) {
            Err(error) => {
                let stand_in = fallback::stand_in(&item);
                let error = error.into_compile_error();
                quote! { #error #stand_in }
            }
            Ok(()) => expand::expand(&ast::Mechanism::read(&item)),
        },
    };
    quote! { #item #rest }
}
