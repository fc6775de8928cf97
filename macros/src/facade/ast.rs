//! What the expansion needs to know of a trait that passed the checks.

use proc_macro2::Ident;
use quote::format_ident;
use syn::{
    Attribute, FnArg, GenericArgument, ItemTrait, Pat, Path, PathArguments, ReturnType, Signature,
    TraitItem, TraitItemFn, Type, TypeParamBound, TypePath,
};

/// A mechanism: the trait and its methods.
pub(super) struct Mechanism {
    pub(super) name: Ident,
    pub(super) methods: Vec<Method>,
}

/// A method of a mechanism.
pub(super) struct Method {
    /// The attributes that hold for every copy of the method.
    pub(super) attributes: Vec<Attribute>,
    pub(super) name: Ident,
    pub(super) arguments: Vec<Argument>,
    pub(super) returns: Returns,
}

/// An argument after `&self`.
pub(super) struct Argument {
    pub(super) name: Ident,
    pub(super) ty: Type,
    /// The path of `At` if that is the type.
    pub(super) at: Option<Path>,
}

/// What comes back.
pub(super) enum Returns {
    /// A future of this.
    Future(Box<Type>),
    /// A value at once.
    Value(ReturnType),
}

impl Mechanism {
    /// Reads a trait. What the checks refuse is left out.
    pub(super) fn read(item: &ItemTrait) -> Self {
        let methods = item.items.iter().filter_map(|item| match item {
            TraitItem::Fn(method) => Some(Method::read(method)),
            _ => None,
        });
        Self {
            name: item.ident.clone(),
            methods: methods.collect(),
        }
    }
}

impl Method {
    fn read(method: &TraitItemFn) -> Self {
        let attributes = method.attrs.iter().filter(|attribute| {
            let path = attribute.path();
            path.is_ident("cfg") || path.is_ident("allow")
        });
        Self {
            attributes: attributes.cloned().collect(),
            name: method.sig.ident.clone(),
            arguments: arguments(&method.sig),
            returns: match future_output(&method.sig.output) {
                Some(output) => Returns::Future(Box::new(output.clone())),
                None => Returns::Value(method.sig.output.clone()),
            },
        }
    }
}

fn arguments(signature: &Signature) -> Vec<Argument> {
    let typed = signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    let named = typed.filter_map(|typed| match &*typed.pat {
        Pat::Ident(name) => Some((name.ident.clone(), &*typed.ty)),
        _ => None,
    });
    let arguments = named.map(|(name, ty)| Argument {
        name,
        ty: ty.clone(),
        at: at_path(ty),
    });
    arguments.collect()
}

/// `At` of `At<'_, Self::Conn>`, as it is written.
pub(super) fn at_path(ty: &Type) -> Option<Path> {
    let Type::Path(TypePath { qself: None, path }) = ty else {
        return None;
    };
    let PathArguments::AngleBracketed(arguments) = &path.segments.last()?.arguments else {
        return None;
    };
    let arguments: Vec<_> = arguments.args.iter().collect();
    let [
        GenericArgument::Lifetime(_),
        GenericArgument::Type(Type::Path(connection)),
    ] = arguments[..]
    else {
        return None;
    };
    if !ends_with(path, "At") || !is_own_connection(connection) {
        return None;
    }
    let mut path = path.clone();
    path.segments.last_mut()?.arguments = PathArguments::None;
    Some(path)
}

fn is_own_connection(ty: &TypePath) -> bool {
    let segments: Vec<_> = ty.path.segments.iter().map(|part| &part.ident).collect();
    ty.qself.is_none() && segments == [&format_ident!("Self"), &format_ident!("Conn")]
}

/// `T` of `-> impl Future<Output = T> …`.
pub(super) fn future_output(returns: &ReturnType) -> Option<&Type> {
    let ReturnType::Type(_, ty) = returns else {
        return None;
    };
    let Type::ImplTrait(opaque) = &**ty else {
        return None;
    };
    opaque.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let last = bound.path.segments.last()?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else {
            return None;
        };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(it) if last.ident == "Future" && it.ident == "Output" => {
                Some(&it.ty)
            }
            _ => None,
        })
    })
}

/// Whether the last segment of a path is this name.
pub(super) fn ends_with(path: &Path, name: &str) -> bool {
    path.segments.last().is_some_and(|last| last.ident == name)
}
