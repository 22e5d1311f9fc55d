//! Errors of calls.

use fpcache_fabric::FabricError;

/// Why a call had no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RfError {
    /// The fabric said so.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// All channels of the server are taken.
    #[error(
        "the server has no channel left for another client; close one, or give it more (`ServerOptions::clients`)"
    )]
    Full,
    /// The other side does not speak this version of RF-RPC, or does not speak it at all.
    #[error(
        "the memory node does not serve RF-RPC version {}; install the same version on both sides",
        crate::VERSION
    )]
    NotServed,
    /// The server's buffers are not where it says that they are, or cannot be written.
    #[error(
        "the buffers that the server names are not in an area that can be written; the memory node must offer one"
    )]
    NoBuffers,
    /// All slots have batches in flight.
    #[error("{0} batches are in flight already; receive results before sending more")]
    InFlight(u16),
    /// A batch does not fit.
    #[error("a batch of {len} bytes in {entries} requests is too long, at most {max} fit; split it")]
    TooLong {
        /// Bytes of the requests.
        len: u64,
        /// Requests.
        entries: usize,
        /// Bytes that fit.
        max: u64,
    },
    /// The results are too long together. The requests have been executed.
    #[error("the results of the batch are longer than the server holds; ask for less at once")]
    ResultsTooLong,
    /// The server found the batch damaged and did not execute it.
    #[error("the server received a damaged batch and did not execute it; send it again")]
    Damaged,
    /// The server does not know the batch's outcome any more: it may have been executed.
    #[error("the batch's results are lost, and it may have been executed; repeat it if that is safe")]
    Lost,
    /// What the server sent is not of this protocol.
    #[error("the server's results are malformed ({0}); connect again")]
    Malformed(&'static str),
    /// A batch was asked for that is not under way.
    #[error("no such batch is under way: receive each batch once, from the client that sent it")]
    NotSent,
}
