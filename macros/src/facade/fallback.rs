//! What a refused trait gets instead of a twin: enough that code which names the twin, or
//! needs the boxed engine to have the mechanism, is not reported as well.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemTrait, Signature, TraitItem};

use super::ast::future_output;
use super::expand::names;

/// A twin without methods, and an implementation for the boxed engine that does nothing.
pub(super) fn stand_in(item: &ItemTrait) -> TokenStream {
    let name = &item.ident;
    let (module, twin) = names(name);
    let methods: Option<Vec<_>> = item.items.iter().map(implement).collect();
    let plain = item.generics.params.is_empty() && item.unsafety.is_none();
    let boxed = methods.filter(|_| plain).map(|methods| {
        quote! {
            #[allow(unused)]
            impl #name for crate::boxed::BoxedEngine {
                #(#methods)*
            }
        }
    });
    quote! {
        pub(crate) mod #module {
            #[allow(unused)]
            use super::*;

            pub(crate) trait #twin: Send + Sync {}

            impl<E: Send + Sync> #twin for E {}

            #boxed
        }
    }
}

/// An item that satisfies the trait, if one can be made up.
fn implement(item: &TraitItem) -> Option<TokenStream> {
    match item {
        TraitItem::Fn(method) => {
            // What the trait demands beyond that, an implementation need not.
            let mut signature = method.sig.clone();
            signature.generics.where_clause = None;
            let body = body(&signature)?;
            Some(quote! { #signature { #body } })
        }
        TraitItem::Const(it) => {
            let (name, ty) = (&it.ident, &it.ty);
            Some(quote! { const #name: #ty = ::std::unimplemented!(); })
        }
        _ => None,
    }
}

fn body(signature: &Signature) -> Option<TokenStream> {
    let returns = &signature.output;
    if future_output(returns).is_some() {
        return Some(quote! { ::std::future::pending() });
    }
    let concrete = !quote! { #returns }.to_string().contains("impl ");
    concrete.then(|| quote! { ::std::unimplemented!() })
}
