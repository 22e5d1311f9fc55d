//! Network cards in virtual time: discrete events, queues with a rate, and nothing of the host's
//! clock.
//!
//! A doorbell batch leaves a thread of a compute node, passes its card, crosses the network, is
//! served by the memory node's card in the order of arrival, and comes back. Every stage is a
//! [`Server`] that takes one message at a time:
//!
//! ```text
//! thread ─ issue ─ transmit ─ one way ─ receive ─ serve ─(core ─ issue)─ transmit ─ one way ─ receive ─ thread
//! ```
//!
//! What requests do to memory happens when they arrive: arrival and service by cards have one
//! order, since queues are first in, first out. Calls do what they do then, too, before a core has
//! got to them. Requests of one batch to one node take effect in that instant, in posting order.
//! `docs/nic-model.md` argues what the model leaves out and which systems that favours.

mod card;
mod events;
mod held;
mod hosts;
mod presets;
mod replies;
mod server;
mod usage;
mod world;

#[cfg(test)]
mod tests;

pub use hosts::Hosts;
pub use presets::{NicSpec, UnknownNic};
pub use server::{Server, period};
pub use usage::{Bound, Usage, Work};
pub use world::{Background, Clients, Request, Step, Target, Verb, World};

/// Virtual time in picoseconds: 213 days fit.
pub type Picos = u64;
