//! As much of an engine as `#[facade]` needs around it. The test brings the mechanism,
//! which is always `Queues`.

use std::any::Any;
use std::sync::Arc;

use crate::queues_twin::DynQueues;

#[derive(Debug, PartialEq)]
pub struct Error(pub &'static str);

pub type Result<T> = std::result::Result<T, Error>;

pub enum At<'c, C: ?Sized> {
    Auto,
    In(&'c mut C),
}

pub trait Backend: Clone + Send + Sync + 'static {
    type Conn: ?Sized + Send + 'static;

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut Self::Conn>;
}

pub(crate) trait DynEngine: DynQueues {}

impl<E: DynQueues> DynEngine for E {}

#[derive(Clone)]
pub struct BoxedEngine(pub(crate) Arc<dyn DynEngine>);

impl Backend for BoxedEngine {
    type Conn = dyn Any + Send;

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut Self::Conn> {
        Some(connection)
    }
}

pub(crate) fn foreign_connection() -> Error {
    Error("foreign connection")
}
