//! The queue pair: where batches are posted and completions come back.

use std::time::Duration;

use crate::error::FabricError;
use crate::in_place::InPlace;
use crate::memory::Access;
use crate::meter::Meter;
use crate::verbs::{AreaId, Batch, RemoteAddr};

/// Names a posted batch until its completion has been polled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// A batch that was not posted, given back.
#[derive(Debug)]
pub struct Rejected {
    /// The batch, as it was.
    pub batch: Batch,
    /// Why.
    pub error: FabricError,
}

/// A posted batch, come back.
#[derive(Debug)]
pub struct Completion {
    /// The ticket [`Endpoint::post`] gave.
    pub ticket: Ticket,
    /// The batch with what landed.
    pub batch: Batch,
    /// Whether it ran. If not, no landing may be looked at.
    pub result: Result<(), FabricError>,
}

/// What an endpoint may do with an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AreaInfo {
    /// Length in bytes.
    pub len: u64,
    /// Rights of this endpoint.
    pub access: Access,
}

/// One queue pair to one memory node, owned by one thread at a time.
///
/// Batches of an endpoint execute in the order in which they were run or posted; see [`Batch`] for
/// the order inside.
pub trait Endpoint {
    /// An area where it lies; [`NotMapped`](crate::NotMapped) where no area can be looked at.
    type InPlace<'a>: InPlace
    where
        Self: 'a;

    /// The area where it lies, if this endpoint can look at it there. Batches posted before are
    /// executed first. What is looked at may be what a memory node has left behind, until
    /// [`check_alive`](InPlace::check_alive) says otherwise.
    ///
    /// # Errors
    /// [`NoSuchArea`](FabricError::NoSuchArea).
    fn in_place(&mut self, _area: AreaId) -> Result<Option<Self::InPlace<'_>>, FabricError> {
        Ok(None)
    }

    /// Posts a batch and waits for it: one dependent round trip. Mapped memory does it inline,
    /// without allocation.
    ///
    /// Batches posted before are executed first; their completions stay to be polled.
    ///
    /// # Errors
    /// [`OutOfBounds`](FabricError::OutOfBounds), [`NoSuchArea`](FabricError::NoSuchArea),
    /// [`Misaligned`](FabricError::Misaligned), [`AccessDenied`](FabricError::AccessDenied) and
    /// [`TooLong`](FabricError::TooLong) for a bad request,
    /// [`Disconnected`](FabricError::Disconnected) if the memory node has gone. See [`Batch`] for
    /// what a failed batch has done.
    fn run(&mut self, batch: &mut Batch) -> Result<(), FabricError>;

    /// Posts a single READ of whole words from `from` into `out` and waits for it: one dependent
    /// round trip. The shortest way to a few words; mapped memory copies them straight, without a
    /// batch.
    ///
    /// # Errors
    /// As for [`run`](Self::run); `out` may then hold anything.
    fn read_words(&mut self, from: RemoteAddr, out: &mut [u64]) -> Result<(), FabricError> {
        let mut batch = Batch::new();
        let landing = batch.read(from, size_of_val(out));
        self.run(&mut batch)?;
        out.copy_from_slice(batch.words(landing));
        Ok(())
    }

    /// As [`read_words`](Self::read_words), of records of `stride` words with their guards; see
    /// [`Batch::read_records`].
    ///
    /// # Errors
    /// As for [`run`](Self::run); `out` may then hold anything.
    fn read_records(&mut self, from: RemoteAddr, out: &mut [u64], stride: usize) -> Result<(), FabricError> {
        let mut batch = Batch::new();
        let landing = batch.read_records(from, size_of_val(out), stride * 8);
        self.run(&mut batch)?;
        out.copy_from_slice(batch.words(landing));
        Ok(())
    }

    /// Whether guarded READs are proven: a record that lands with another word than
    /// [`CHANGED`](crate::CHANGED) in the place of its guard is whole. Where this is not so, a
    /// record must prove itself.
    fn guards(&self) -> bool {
        false
    }

    /// Whether the memory node may answer questions ([`Batch::ask`]) of this endpoint's region. If
    /// it does not after all, the reply is zeros, and from then on this says so.
    fn answers(&self) -> bool {
        false
    }

    /// The smoothed time of a short batch's round trip over this connection, if it was measured.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Loads the 8-aligned word at `at` after every READ this endpoint has completed: whether what
    /// was read may still be believed. No round trip: memory that is mapped is looked at in place;
    /// where it is not, the word that the memory node [watches](crate::Export::with_watched) comes
    /// with every batch over a socket, or by its [lease](crate::Export::with_lease) with READs by
    /// network cards, and any other costs one.
    ///
    /// *What it rests on.* The memory node stores the word, then a release fence
    /// ([`NodeMemory::release`]), then what the word warns of. Every way of READing ends in an
    /// acquire fence before its data can be looked at ([`run`](Self::run),
    /// [`read_words`](Self::read_words), and of a posted batch the [`poll`](Self::poll) or the
    /// later call that completes it), and this load stands after that fence. If a READ saw any word
    /// stored after the release fence, the two fences synchronise (C11, 7.17.4), on machines of
    /// every memory order, and the load brings the value stored before it or a newer one. The same
    /// pair of fences makes what one reader has seen visible to another that it tells: READs of one
    /// word never go back in time along a chain of such messages. Copies by vector moves stand for
    /// relaxed loads of words, and are not moved across a fence by compiler or processor. Under a
    /// lease the word may be older than the READs, which were over before anything was stored that
    /// a newer one warns of.
    ///
    /// [`NodeMemory::release`]: crate::NodeMemory::release
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    fn load_after_reads(&mut self, at: RemoteAddr) -> Result<u64, FabricError>;

    /// For how long from now on this endpoint waits for the memory node: what waits then fails with
    /// [`DeadlinePassed`](FabricError::DeadlinePassed), however many batches there were before it,
    /// until this is called again. To be called at the start of a call that has a deadline. Where
    /// memory is mapped nothing is waited for, and this does nothing.
    #[inline(always)]
    fn set_patience(&mut self, _patience: Duration) {}

    /// Posts a batch and returns at once. The fabric owns the batch, landing buffer included, until
    /// [`poll`](Self::poll) gives it back: dropping a waiting operation cannot leave a network card
    /// writing into freed memory.
    ///
    /// # Errors
    /// If too many batches are in flight or the memory node has gone. Errors of the requests come
    /// with the completion.
    #[allow(clippy::result_large_err, reason = "the batch must come back; rejection is rare")]
    fn post(&mut self, batch: Batch) -> Result<Ticket, Rejected>;

    /// The oldest completion that has not been polled, if one is ready. Completions come in posting
    /// order.
    fn poll(&mut self) -> Option<Completion>;

    /// Length and rights of an area, if the memory node offers it to this endpoint.
    fn area(&self, area: AreaId) -> Option<AreaInfo>;

    /// This endpoint's counts.
    fn meter(&self) -> &Meter;
}

/// Endpoints that are made of one another, over the same areas, on any thread.
pub trait Another: Endpoint + Send + Sync + 'static {
    /// Another endpoint over the same areas, with counts of its own. Costs one small allocation.
    #[must_use]
    fn another(&self) -> Self;
}
