//! The same job given to fio and to `fathom fio`: the same I/O reaches the device and the same numbers come out. Where fio
//! is not installed, what fathom does is still held to what fio is known to do.

mod clients;
mod common;
mod corpus;
mod data;
mod effects;
mod engines;
mod errors;
mod habits;
#[cfg(feature = "http")]
mod http;
mod io;
mod options;
mod permits;
mod sequences;
mod terms;
mod verify;
