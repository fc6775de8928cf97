//! The twin, written as one would by hand.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::visit_mut::{self, VisitMut};
use syn::{Lifetime, ParenthesizedGenericArguments, Type, TypeBareFn, TypeReference, parse_quote};

use super::ast::{Argument, Mechanism, Method, Returns};

/// The twin's module: its trait, its implementation by every engine, and the mechanism's
/// implementation by the boxed engine.
pub(super) fn expand(mechanism: &Mechanism) -> TokenStream {
    let name = &mechanism.name;
    let (module, twin) = names(name);
    let doc = format!(" `{name}` behind a pointer.");
    let declared = mechanism.methods.iter().map(declare);
    let erased = mechanism.methods.iter().map(|method| erase(name, method));
    let forwarded = mechanism
        .methods
        .iter()
        .map(|method| forward(&twin, method));
    quote! {
        #[doc = #doc]
        pub(crate) mod #module {
            use super::*;

            pub(crate) trait #twin: Send + Sync {
                #(#declared)*
            }

            impl<E: #name> #twin for E {
                #(#erased)*
            }

            impl #name for crate::boxed::BoxedEngine {
                #(#forwarded)*
            }
        }
    }
}

/// The twin's module and trait.
pub(super) fn names(mechanism: &Ident) -> (Ident, Ident) {
    let mut snake = String::new();
    for letter in mechanism.to_string().chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    (
        format_ident!("{snake}_twin"),
        format_ident!("Dyn{mechanism}"),
    )
}

/// The method in the twin.
fn declare(method: &Method) -> TokenStream {
    let attributes = &method.attributes;
    let signature = twin_signature(method);
    quote! { #(#attributes)* #signature; }
}

/// The twin's method for an engine. The box around the engine's own future is the only
/// allocation.
fn erase(mechanism: &Ident, method: &Method) -> TokenStream {
    let attributes = &method.attributes;
    let signature = twin_signature(method);
    let name = &method.name;
    let arguments = method.arguments.iter().map(|argument| &argument.name);
    let call = quote! { #mechanism::#name(self #(, #arguments)*) };
    let body = match method.returns {
        Returns::Future(_) => quote! { Box::pin(#call) },
        Returns::Value(_) => call,
    };
    let recovered = method.arguments.iter().filter_map(recover);
    quote! { #(#attributes)* #signature { #(#recovered)* #body } }
}

/// The engine's connection in the argument, if it is an `At`.
fn recover(argument: &Argument) -> Option<TokenStream> {
    let Argument { name, at, .. } = argument;
    let at = at.as_ref()?;
    Some(quote! {
        let #name = match #name {
            #at::Auto => #at::Auto,
            #at::In(connection) => match <E as Backend>::downcast(connection) {
                Some(connection) => #at::In(connection),
                None => {
                    return Box::pin(::std::future::ready(Err(
                        crate::boxed::foreign_connection(),
                    )));
                }
            },
        };
    })
}

/// The mechanism's method for the boxed engine. The call goes by the twin's path: as a method
/// it would be ambiguous, because the mechanism and the twin share the name.
fn forward(twin: &Ident, method: &Method) -> TokenStream {
    let attributes = &method.attributes;
    let name = &method.name;
    let names = method.arguments.iter().map(|argument| &argument.name);
    let types = method.arguments.iter().map(|argument| &argument.ty);
    let arguments = quote! { &self #(, #names: #types)* };
    let names = method.arguments.iter().map(|argument| &argument.name);
    let call = quote! { #twin::#name(&*self.0 #(, #names)*) };
    let method = match &method.returns {
        Returns::Future(output) => {
            quote! { async fn #name(#arguments) -> #output { #call.await } }
        }
        Returns::Value(returns) => quote! { fn #name(#arguments) #returns { #call } },
    };
    quote! { #(#attributes)* #method }
}

fn twin_signature(method: &Method) -> TokenStream {
    let name = &method.name;
    let names = method.arguments.iter().map(|argument| &argument.name);
    match &method.returns {
        Returns::Future(output) => {
            let types = method.arguments.iter().map(twin_type);
            quote! {
                fn #name<'s>(&'s self #(, #names: #types)*)
                    -> ::futures::future::BoxFuture<'s, #output>
            }
        }
        Returns::Value(returns) => {
            let types = method.arguments.iter().map(|argument| &argument.ty);
            quote! { fn #name(&self #(, #names: #types)*) #returns }
        }
    }
}

/// The argument's type, borrowed for as long as the future lives.
fn twin_type(argument: &Argument) -> Type {
    let mut ty = match &argument.at {
        Some(at) => parse_quote! { #at<'s, dyn ::std::any::Any + ::std::marker::Send> },
        None => argument.ty.clone(),
    };
    NameLifetimes.visit_type_mut(&mut ty);
    ty
}

/// Writes `'s` where a lifetime is left out.
struct NameLifetimes;

impl VisitMut for NameLifetimes {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = Lifetime::new("'s", lifetime.span());
        }
    }

    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        let span = reference.and_token.span;
        reference
            .lifetime
            .get_or_insert_with(|| Lifetime::new("'s", span));
        visit_mut::visit_type_reference_mut(self, reference);
    }

    // What a function pointer or closure leaves out, its callers choose.
    fn visit_type_bare_fn_mut(&mut self, _: &mut TypeBareFn) {}
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {
    }
}
