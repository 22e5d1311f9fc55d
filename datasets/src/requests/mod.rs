//! Request streams, generated before the clock starts: the key of each lookup and the expected
//! answer; and streams of [operations](Operations) that also change records.

mod absent;
mod bytes;
mod distribution;
mod draw;
mod growth;
mod hot;
mod integers;
mod mix;
mod operations;
mod permutation;
mod popular;
mod sosd;
mod workload;
mod ycsb;
mod zipf;

pub(crate) use ycsb::fnv64;

pub use bytes::{AbsentKeys, ByteRequests, generate_bytes};
pub use distribution::{Distribution, ParseDistributionError};
pub use draw::{ABSENT, RequestOptions};
pub use growth::{Growth, InsertOrder, ParseInsertOrderError};
pub use integers::{Requests, generate, generate_for};
pub use mix::{Mix, OperationKind, ParseMixError};
pub use operations::{Operation, Operations, Play};
pub use workload::{ParseWorkloadError, Workload};
