//! Guests as benches: the agent that runs inside of one ([`agent`]), and the bench that it is to the host ([`remote`]).

pub mod agent;
pub(crate) mod conduct;
pub mod needs;
pub mod remote;
pub(crate) mod spool;

pub use needs::Needs;
pub use remote::RemoteBench;
