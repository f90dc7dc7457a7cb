//! Fleets: hosts that people's own launchers reach ([`via`]), what is tested on each ([`hosts`]), and how fathom comes
//! to be there ([`carry`]). Nothing listens, and nobody is authenticated here: that is the launcher's.

pub mod carry;
pub mod hosts;
pub mod via;

pub use carry::Fathom;
pub use hosts::{Host, launcher};
pub use via::Via;
