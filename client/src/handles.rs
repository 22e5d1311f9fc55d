//! What handles promise about threads, seen to hold when this is compiled.

#[cfg(feature = "tokio")]
use crate::asynchronous::{AsyncByteClient, AsyncClient, RecordStream, ScanStream};
use crate::changes::Changes;
use crate::client::{ByteClient, Client};
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::load::Load;
use crate::nodes::{NewTable, Nodes};
use crate::pipeline::{BytePipeline, Pipeline};
use crate::reader::{ByteReader, Reader};
use crate::records::Records;
use crate::tables::Tables;
use fpcache::key_space::{ByteKeys, U64Keys};

const fn by_any_number_of_threads<T: Send + Sync>() {}

const fn by_one_thread_after_another<T: Send>() {}

const _: () = {
    by_any_number_of_threads::<Client>();
    by_any_number_of_threads::<ByteClient>();
    by_any_number_of_threads::<Tables>();
    by_any_number_of_threads::<Nodes>();
    by_any_number_of_threads::<Changes>();
    by_any_number_of_threads::<ClientConfig>();
    by_any_number_of_threads::<ClientError>();
    by_one_thread_after_another::<Reader>();
    by_one_thread_after_another::<ByteReader>();
    by_one_thread_after_another::<Records<'_>>();
    by_one_thread_after_another::<Records<'_, ByteKeys>>();
    by_one_thread_after_another::<Pipeline>();
    by_one_thread_after_another::<BytePipeline>();
    by_one_thread_after_another::<Load<'_>>();
    by_one_thread_after_another::<Load<'_, ByteKeys>>();
    by_one_thread_after_another::<NewTable<U64Keys>>();
};

#[cfg(feature = "tokio")]
const _: () = {
    by_any_number_of_threads::<AsyncClient>();
    by_any_number_of_threads::<AsyncByteClient>();
    by_one_thread_after_another::<RecordStream>();
    by_one_thread_after_another::<ScanStream<U64Keys>>();
};
