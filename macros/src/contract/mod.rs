//! The contract matrix: engine × {static, boxed} × case.
//!
//! Three macros, because no single one knows everything. [`cases`] stands beside the cases of
//! a mechanism and knows their names. [`contract`] stands in an engine's tests and knows the
//! harness. It calls a macro that `cases` left behind for each mechanism, and that one calls
//! [`tests`] with the knowledge of both.

mod expand;
mod parse;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::Error;

use crate::errors::Errors;
use parse::{CaseList, Contract, MechanismTests};

/// The mechanisms in the order in which they build on each other: the columns of the matrix.
const MECHANISMS: [&str; 11] = [
    "name",
    "payload",
    "store",
    "tx",
    "notify",
    "stream",
    "queue",
    "batch",
    "outbox",
    "lock",
    "scheduler",
];

/// Doors to the cases of one mechanism, and the macro that hands the list on.
pub(crate) fn cases(input: TokenStream) -> TokenStream {
    match syn::parse2::<CaseList>(input) {
        Ok(mut list) => {
            let mut errors = Errors::default();
            check_mechanism(&list.mechanism, &mut errors);
            list.remove_repeated(&mut errors);
            // The list goes out in any case, so that nothing else is missing for one mistake.
            let errors = errors
                .into_result()
                .map_err(Error::into_compile_error)
                .err();
            let expansion = expand::cases(&list);
            quote! { #errors #expansion }
        }
        Err(error) => error.into_compile_error(),
    }
}

/// The modules of one engine, each with one call for every mechanism.
pub(crate) fn contract(input: TokenStream) -> TokenStream {
    let contract = syn::parse2::<Contract>(input).and_then(|contract| {
        let mut errors = Errors::default();
        for skip in &contract.skips {
            check_mechanism(&skip.mechanism, &mut errors);
        }
        contract.check_skips(&mut errors);
        errors.into_result().map(|()| contract)
    });
    match contract {
        Ok(contract) => expand::contract(&contract),
        Err(error) => error.into_compile_error(),
    }
}

/// The tests of one mechanism for one face of an engine.
pub(crate) fn tests(input: TokenStream) -> TokenStream {
    let tests = syn::parse2::<MechanismTests>(input).and_then(|tests| {
        let mut errors = Errors::default();
        tests.check_skips(&mut errors);
        errors.into_result().map(|()| tests)
    });
    match tests {
        Ok(tests) => expand::tests(&tests),
        Err(error) => error.into_compile_error(),
    }
}

fn check_mechanism(name: &Ident, errors: &mut Errors) {
    if MECHANISMS.iter().all(|known| name != known) {
        let known = MECHANISMS.join("`, `");
        errors.refuse(
            name,
            &format!("`{name}` is no mechanism of the contract; write one of `{known}`"),
        );
    }
}
