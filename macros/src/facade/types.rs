//! What the types of a method may mention.

use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{
    FnArg, Lifetime, Pat, PatType, Path, ReturnType, Signature, Type, TypeImplTrait,
    TypeParamBound, TypeReference,
};

use super::ast::{at_path, ends_with, future_output};
use crate::errors::Errors;

impl Errors {
    pub(super) fn check_argument(&mut self, argument: &PatType) {
        let plain = matches!(&*argument.pat, Pat::Ident(name)
            if name.by_ref.is_none() && name.mutability.is_none() && name.subpat.is_none());
        if !plain {
            self.refuse(
                &argument.pat,
                "the twin hands an argument on by its name; write a plain `name: Type`",
            );
        }
        if at_path(&argument.ty).is_some() {
            return;
        }
        let mut mentions = Mentions::default();
        mentions.visit_type(&argument.ty);
        for opaque in mentions.opaque {
            self.refuse(
                opaque,
                "an `impl` argument is a hidden type parameter, and behind a pointer there is \
                 one function for all callers; take a concrete type or `&dyn …`",
            );
        }
        for own in mentions.own {
            self.refuse(
                own,
                "an engine's own type is unknown behind a pointer; an argument may mention it \
                 only as `At<'_, Self::Conn>`, which the twin translates",
            );
        }
    }

    pub(super) fn check_return(&mut self, signature: &Signature) {
        let ReturnType::Type(_, returned) = &signature.output else {
            self.check_at(signature, None);
            return;
        };
        let output = future_output(&signature.output);
        self.check_at(signature, output);
        if let (Some(_), Type::ImplTrait(future)) = (output, &**returned) {
            self.check_future(future);
        }
        let mut mentions = Mentions::default();
        mentions.visit_type(output.unwrap_or(returned));
        for opaque in mentions.opaque {
            self.refuse(
                opaque,
                "behind a pointer a method returns one type for all engines; return a concrete \
                 type, or `impl Future<Output = …> + Send`",
            );
        }
        for own in mentions.own {
            self.refuse(
                own,
                "an engine's own type is unknown behind a pointer; return a type that all \
                 engines share",
            );
        }
        for borrow in mentions.borrows {
            self.refuse(
                borrow,
                "the twin gives every borrow one lifetime, so what it returned could borrow \
                 from any argument; return an owned value",
            );
        }
    }

    /// A foreign connection must have a way out as an error.
    fn check_at(&mut self, signature: &Signature, output: Option<&Type>) {
        let fails = matches!(output, Some(Type::Path(output)) if ends_with(&output.path, "Result"));
        for input in &signature.inputs {
            if let FnArg::Typed(argument) = input
                && at_path(&argument.ty).is_some()
                && signature.asyncness.is_none()
                && !fails
            {
                self.refuse(
                    &argument.ty,
                    "behind a pointer a connection can turn out to be another engine's, which \
                     is an error; return `impl Future<Output = Result<…>> + Send`",
                );
            }
        }
    }

    fn check_future(&mut self, future: &TypeImplTrait) {
        let is = |bound: &TypeParamBound, name| matches!(bound, TypeParamBound::Trait(bound) if ends_with(&bound.path, name));
        if !future.bounds.iter().any(|bound| is(bound, "Send")) {
            self.refuse(
                future,
                "this future need not be `Send`, but a boxed one must be; add `+ Send`",
            );
        }
        for bound in &future.bounds {
            if !is(bound, "Send") && !is(bound, "Future") {
                self.refuse(
                    bound,
                    "a boxed future borrows from all arguments and is nothing but `Send`; write \
                     `impl Future<Output = …> + Send`",
                );
            }
        }
    }
}

/// What a type mentions that matters here.
#[derive(Default)]
struct Mentions<'a> {
    opaque: Vec<&'a TypeImplTrait>,
    own: Vec<&'a Path>,
    borrows: Vec<&'a dyn ToTokens>,
}

impl<'a> Visit<'a> for Mentions<'a> {
    fn visit_type_impl_trait(&mut self, opaque: &'a TypeImplTrait) {
        self.opaque.push(opaque);
    }

    fn visit_path(&mut self, path: &'a Path) {
        if path
            .segments
            .first()
            .is_some_and(|first| first.ident == "Self")
        {
            self.own.push(path);
        }
        visit::visit_path(self, path);
    }

    fn visit_lifetime(&mut self, lifetime: &'a Lifetime) {
        if !is_static(Some(lifetime)) {
            self.borrows.push(lifetime);
        }
    }

    fn visit_type_reference(&mut self, reference: &'a TypeReference) {
        if !is_static(reference.lifetime.as_ref()) {
            self.borrows.push(reference);
        }
        self.visit_type(&reference.elem);
    }
}

pub(super) fn is_static(lifetime: Option<&Lifetime>) -> bool {
    lifetime.is_some_and(|lifetime| lifetime.ident == "static")
}
