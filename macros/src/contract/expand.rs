//! The matrix, written as one would by hand.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;

use super::MECHANISMS;
use super::parse::{CaseList, Contract, MechanismTests, Skip, usual_path};

/// The doors make a case public without its file saying so: one that is not listed stays
/// private, and the compiler reports it as unused.
pub(super) fn cases(list: &CaseList) -> TokenStream {
    let CaseList { mechanism, cases } = list;
    let paths = cases.iter().map(|case| case_path(mechanism, case));
    let handed_on = handed_on(mechanism);
    quote! {
        #[doc(hidden)]
        pub const CASES: &[&str] = &[#(#paths),*];

        #[doc(hidden)]
        pub mod cases {
            #(
                pub async fn #cases<H: crate::Harness>(harness: &H) {
                    super::#cases(harness).await;
                }
            )*
        }

        #[doc(hidden)]
        pub fn table<H: crate::Harness>() -> ::std::vec::Vec<(&'static str, crate::CaseFn<H>)> {
            let cases: [crate::CaseFn<H>; CASES.len()] =
                [#(|harness| ::std::boxed::Box::pin(cases::#cases(harness))),*];
            ::std::iter::zip(CASES.iter().copied(), cases).collect()
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! #handed_on {
            ($($face:tt)*) => {
                $crate::__contract_tests! { [#mechanism: #(#cases),*] $($face)* }
            };
        }
    }
}

/// The alias stands where the macro was called: there the harness's path means what the
/// caller meant, whatever the modules below are named.
pub(super) fn contract(contract: &Contract) -> TokenStream {
    let Contract {
        engine, harness, ..
    } = contract;
    let alias = format_ident!("{}UnderTest", camel_case(engine));
    let path = contract.path.clone().unwrap_or_else(usual_path);
    let unboxed = face(contract, &format_ident!("static_dispatch"));
    let boxed = face(contract, &format_ident!("boxed"));
    quote! {
        type #alias = #harness;

        mod #engine {
            mod static_dispatch {
                type Harness = super::super::#alias;
                #unboxed
            }

            mod boxed {
                type Harness = #path::Boxed<super::super::#alias>;
                #boxed
            }
        }
    }
}

/// All mechanisms for one face of the engine.
fn face(contract: &Contract, face: &Ident) -> TokenStream {
    let given = &contract.path;
    let path = given.clone().unwrap_or_else(usual_path);
    let calls = MECHANISMS.iter().map(|mechanism| {
        let handed_on = handed_on(mechanism);
        let skips = contract.skips.iter();
        let skips = skips.filter(|skip| skip.mechanism == mechanism);
        quote! {
            #path::#handed_on! { #face { #(#skips),* } #given }
        }
    });
    calls.collect()
}

pub(super) fn tests(tests: &MechanismTests) -> TokenStream {
    let CaseList { mechanism, cases } = &tests.list;
    let crate_path = &tests.path;
    let cases = cases.iter().map(|case| {
        let ignore = tests
            .skipped(case)
            .map(|reason| quote! { #[ignore = #reason] });
        let path = case_path(mechanism, case);
        quote! {
            #[test]
            #ignore
            fn #case() {
                #crate_path::run::<super::Harness>(#path, |harness| {
                    ::std::boxed::Box::pin(
                        #crate_path::#mechanism::cases::#case(harness),
                    )
                });
            }
        }
    });
    quote! { mod #mechanism { #(#cases)* } }
}

/// The macro that hands a mechanism's list on.
fn handed_on(mechanism: impl ToString) -> Ident {
    format_ident!("__alkstore_{}_cases", mechanism.to_string())
}

fn case_path(mechanism: &Ident, case: &Ident) -> String {
    format!("{mechanism}::{case}")
}

fn camel_case(name: &Ident) -> String {
    let name = name.unraw().to_string();
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_uppercase() + rest
    });
    words.collect()
}

impl ToTokens for Skip {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self {
            mechanism,
            case,
            reason,
        } = self;
        tokens.extend(quote! { #mechanism::#case = #reason });
    }
}
