//! What the macros of the matrix are given, and what is wrong with it.

use proc_macro2::Ident;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{LitStr, Path, Result, Token, Type, braced, bracketed, parse_quote};

use crate::errors::Errors;

mod keyword {
    syn::custom_keyword!(skip);
}

/// `queue: a_case, another_case`
pub(super) struct CaseList {
    pub(super) mechanism: Ident,
    pub(super) cases: Vec<Ident>,
}

impl Parse for CaseList {
    fn parse(input: ParseStream) -> Result<Self> {
        let mechanism = input.parse()?;
        input.parse::<Token![:]>()?;
        let cases = Punctuated::<Ident, Token![,]>::parse_terminated(input)?;
        Ok(Self {
            mechanism,
            cases: cases.into_iter().collect(),
        })
    }
}

impl CaseList {
    /// Leaves each case once.
    pub(super) fn remove_repeated(&mut self, errors: &mut Errors) {
        let mut seen = Vec::with_capacity(self.cases.len());
        for case in self.cases.drain(..) {
            if seen.contains(&case) {
                errors.refuse(&case, "this case is listed already; remove it here");
            } else {
                seen.push(case);
            }
        }
        self.cases = seen;
    }
}

/// `sqlite: SqliteHarness, crate: renamed, skip: { notify::a_case = "reason" }`
pub(super) struct Contract {
    pub(super) engine: Ident,
    pub(super) harness: Type,
    /// Where the cases are, if they are not where they usually are.
    pub(super) path: Option<Path>,
    pub(super) skips: Vec<Skip>,
}

/// `notify::a_case = "reason"`
pub(super) struct Skip {
    pub(super) mechanism: Ident,
    pub(super) case: Ident,
    pub(super) reason: LitStr,
}

impl Parse for Contract {
    fn parse(input: ParseStream) -> Result<Self> {
        let engine = input.parse()?;
        if !input.peek(Token![:]) {
            return Err(input.error("the contract needs a harness; write `engine: Harness`"));
        }
        input.parse::<Token![:]>()?;
        let harness = input.parse()?;
        let (mut path, mut skips) = (None, Vec::new());
        let mut more = input.parse::<Option<Token![,]>>()?.is_some();
        if more && input.peek(Token![crate]) {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![:]>()?;
            path = Some(input.call(Path::parse_mod_style)?);
            more = input.parse::<Option<Token![,]>>()?.is_some();
        }
        if more && !input.is_empty() {
            input.parse::<keyword::skip>()?;
            input.parse::<Token![:]>()?;
            skips = parse_skips(input)?;
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(Self {
            engine,
            harness,
            path,
            skips,
        })
    }
}

impl Parse for Skip {
    fn parse(input: ParseStream) -> Result<Self> {
        let mechanism = input.parse()?;
        input.parse::<Token![::]>()?;
        let case = input.parse()?;
        input.parse::<Token![=]>()?;
        let reason = input.parse()?;
        Ok(Self {
            mechanism,
            case,
            reason,
        })
    }
}

fn parse_skips(input: ParseStream) -> Result<Vec<Skip>> {
    let skips;
    braced!(skips in input);
    let skips = Punctuated::<Skip, Token![,]>::parse_terminated(&skips)?;
    Ok(skips.into_iter().collect())
}

impl Contract {
    /// Whether the named cases exist is not known here.
    pub(super) fn check_skips(&self, errors: &mut Errors) {
        for (index, skip) in self.skips.iter().enumerate() {
            if skip.reason.value().trim().is_empty() {
                errors.refuse(
                    &skip.reason,
                    "a skipped case shows its reason in every run; say why the engine cannot \
                     keep it",
                );
            }
            let same =
                |other: &Skip| (&other.mechanism, &other.case) == (&skip.mechanism, &skip.case);
            if self.skips[..index].iter().any(same) {
                errors.refuse(&skip.case, "this case is skipped already; remove it here");
            }
        }
    }
}

/// `[queue: a_case, another_case] static_dispatch { queue::a_case = "reason" } renamed`
pub(super) struct MechanismTests {
    pub(super) list: CaseList,
    face: Ident,
    skips: Vec<Skip>,
    pub(super) path: Path,
}

impl Parse for MechanismTests {
    fn parse(input: ParseStream) -> Result<Self> {
        let list;
        bracketed!(list in input);
        Ok(Self {
            list: list.parse()?,
            face: input.parse()?,
            skips: parse_skips(input)?,
            path: match input.is_empty() {
                true => usual_path(),
                false => input.call(Path::parse_mod_style)?,
            },
        })
    }
}

/// Where a crate finds the cases that has not renamed its dependency on them.
pub(super) fn usual_path() -> Path {
    parse_quote!(::alkstore_contract_tests)
}

impl MechanismTests {
    /// The reason why a case is skipped.
    pub(super) fn skipped(&self, case: &Ident) -> Option<&LitStr> {
        let skip = self.skips.iter().find(|skip| skip.case == *case)?;
        Some(&skip.reason)
    }

    /// Both faces get the same skips, so one of them reports those that name no case.
    pub(super) fn check_skips(&self, errors: &mut Errors) {
        if self.face != "static_dispatch" {
            return;
        }
        let CaseList { mechanism, cases } = &self.list;
        for Skip { case, .. } in &self.skips {
            if cases.contains(case) {
                continue;
            }
            let near = near_names(&case.to_string(), cases);
            let advice = match near.is_empty() {
                true => ", nor one with a similar name; remove the skip".to_owned(),
                false => format!("; did you mean `{}`?", near.join("` or `")),
            };
            errors.refuse(case, &format!("`{mechanism}` has no case `{case}`{advice}"));
        }
    }
}

/// The up to three names that a slip of the pen may have been meant to be, nearest first.
fn near_names(name: &str, cases: &[Ident]) -> Vec<String> {
    let cases = cases.iter().map(ToString::to_string);
    let mut near: Vec<_> = cases
        .map(|case| (edits(name, &case), case))
        .filter(|(edits, case)| *edits <= case.len().max(name.len()) / 3)
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, case)| case).collect()
}

/// The fewest letters to insert, delete or replace that make one name of the other.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut left = above + 1;
        let mut diagonal = std::mem::replace(&mut row[0], left);
        for (column, other) in other.chars().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            left = replaced.min(left + 1).min(diagonal + 1);
            row[column + 1] = left;
        }
    }
    row.last().copied().unwrap_or(0)
}
