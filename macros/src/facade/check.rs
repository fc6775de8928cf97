//! What a boxed engine cannot stand in for. Each error points at its cause, says why, and
//! what to write instead.

use syn::{
    FnArg, GenericParam, ItemTrait, Receiver, Result, Signature, TraitItem, TraitItemFn,
    TypeParamBound,
};

use super::ast::ends_with;
use super::types::is_static;
use crate::errors::Errors;

/// All that is wrong with the trait, in one error.
pub(super) fn check(item: &ItemTrait) -> Result<()> {
    let mut errors = Errors::default();
    errors.check_trait(item);
    for item in &item.items {
        match item {
            TraitItem::Fn(method) => errors.check_method(method),
            TraitItem::Type(_) => errors.refuse(
                item,
                "an associated type cannot be boxed: every engine would bring its own, and \
                 `BoxedEngine` is one type; move it to `Backend`, which is boxed by hand",
            ),
            TraitItem::Const(_) => errors.refuse(
                item,
                "an associated constant cannot be boxed: it belongs to a type, and a pointer \
                 only has a value; make it a method of `&self`",
            ),
            _ => errors.refuse(
                item,
                "`#[facade]` cannot see methods that come out of a macro; write them out",
            ),
        }
    }
    errors.into_result()
}

impl Errors {
    fn check_trait(&mut self, item: &ItemTrait) {
        let generics = &item.generics;
        if !generics.params.is_empty() {
            self.refuse(
                generics,
                "a generic trait cannot be boxed: `BoxedEngine` implements it once; take what \
                 varies as an argument",
            );
        }
        if let Some(clause) = &generics.where_clause {
            self.refuse(
                clause,
                "a `where` clause cannot be boxed: `BoxedEngine` need not satisfy it; bound \
                 what it is about on `Backend`",
            );
        }
        if let Some(token) = item.unsafety {
            self.refuse(
                token,
                "an unsafe trait cannot be boxed: `#[facade]` cannot vouch for the twin; \
                 remove `unsafe`",
            );
        }
        let extends_backend = item.supertraits.iter().any(
            |bound| matches!(bound, TypeParamBound::Trait(bound) if ends_with(&bound.path, "Backend")),
        );
        if !extends_backend {
            self.refuse(
                &item.ident,
                "the twin finds an engine's connection through `Backend`; write `: Backend` \
                 after the trait's name",
            );
        }
    }

    fn check_method(&mut self, method: &TraitItemFn) {
        let signature = &method.sig;
        if let Some(body) = &method.default {
            self.refuse(
                body,
                "a default body is not allowed: engines would inherit it unnoticed; end the \
                 method with `;` and put what engines share beside the trait",
            );
        }
        if let Some(token) = &signature.asyncness {
            self.refuse(
                token,
                "`async fn` does not promise a future that is `Send`, which a boxed one must \
                 be; write `fn … -> impl Future<Output = …> + Send`",
            );
        }
        if let Some(token) = &signature.unsafety {
            self.refuse(
                token,
                "an unsafe method cannot be boxed: `#[facade]` cannot vouch for its callers; \
                 remove `unsafe`",
            );
        }
        self.check_generics(signature);
        self.check_receiver(signature);
        for input in &signature.inputs {
            if let FnArg::Typed(argument) = input {
                self.check_argument(argument);
            }
        }
        self.check_return(signature);
    }

    fn check_generics(&mut self, signature: &Signature) {
        for parameter in &signature.generics.params {
            let message = match parameter {
                GenericParam::Lifetime(_) => {
                    "a named lifetime cannot be boxed: in the twin every argument is borrowed \
                     for as long as the future lives; leave the name out, or write `'_`"
                }
                GenericParam::Type(_) | GenericParam::Const(_) => {
                    "a generic method cannot be boxed: behind a pointer there is one function \
                     for all callers; take a concrete type, such as a slice"
                }
            };
            self.refuse(parameter, message);
        }
        if let Some(clause) = &signature.generics.where_clause {
            self.refuse(
                clause,
                "a `where` clause cannot be boxed: the twin need not satisfy it; remove it",
            );
        }
    }

    fn check_receiver(&mut self, signature: &Signature) {
        match signature.receiver() {
            // A named lifetime is refused where it is declared.
            Some(Receiver {
                reference: Some((_, lifetime)),
                mutability: None,
                colon_token: None,
                ..
            }) if !is_static(lifetime.as_ref()) => {}
            Some(receiver) => self.refuse(
                receiver,
                "an engine is shared by all who use it, also behind a pointer; write `&self`",
            ),
            None => self.refuse(
                &signature.ident,
                "a method without `&self` cannot be boxed: there is no engine to call it on; \
                 make `&self` its first argument",
            ),
        }
    }
}
