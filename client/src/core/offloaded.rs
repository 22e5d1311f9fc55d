//! The last resort: having the memory node's processor look keys up.

use std::sync::Arc;

use fpcache::key_space::KeySpace;
use fpcache::layout::RecordToken;
use fpcache::message::{MessageError, Request, decode_reply};
use fpcache::read::{LookupScratch, Outcome, Outcomes};
use fpcache_fabric::{Connection, Deadline};

use super::recover::Retry;
use super::{Connector, Core};
use crate::error::ClientError;

/// Bytes of a reply beside the values, per key and in all.
const REPLY_HEADS: (usize, usize) = (16, 8);
/// Bytes of a request beside the keys.
const REQUEST_HEAD: usize = 16;

impl<K: KeySpace + 'static, T: Connector> Core<K, T> {
    /// Looks one key up.
    #[cold]
    pub(super) fn look_up_offloaded<R>(
        &self,
        key: K::Key,
        retry: &mut Retry,
        mut take: impl FnMut(&Outcome, Option<&[u8]>) -> R,
    ) -> Result<R, ClientError> {
        let mut taken = None;
        self.offload(std::iter::once(key), retry.deadline(&*self.clock), |version, value| {
            let outcome = Outcome::offloaded(version, value.len() as u64);
            taken = Some(take(&outcome, version.map(|_| value)));
        })?;
        taken.ok_or_else(|| cut_short().into())
    }

    /// Tells the memory node that its newest directory is out of date here, by asking it for no key at all: it writes
    /// another one soon.
    #[cold]
    pub(super) fn ask_for_directory(&self, retry: &mut Retry) {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        Request::Get(&[]).encode::<K>(&mut request);
        let connection = Arc::clone(&self.session().connection);
        // Whether it heard is seen by what the next attempt finds.
        let _ = connection.call(&request, &mut reply, retry.deadline(&*self.clock));
    }

    /// Looks a group of keys up.
    #[cold]
    pub(super) fn lookup_offloaded<R>(
        &self,
        keys: impl Iterator<Item = K::Key>,
        retry: &mut Retry,
        mut take: impl FnMut(&mut LookupScratch<K>) -> R,
    ) -> Result<R, ClientError> {
        let mut outcomes = Outcomes::default();
        self.offload(keys, retry.deadline(&*self.clock), |version, value| {
            outcomes.push_offloaded(version, value)
        })?;
        let mut scratch = LookupScratch::new(self.matcher);
        scratch.swap_outcomes(&mut outcomes);
        Ok(take(&mut scratch))
    }

    /// Asks for keys, as many at once as request and reply have room for, and hands over version and value of each.
    fn offload(
        &self,
        keys: impl Iterator<Item = K::Key>,
        deadline: Deadline,
        mut take: impl FnMut(Option<u32>, &[u8]),
    ) -> Result<(), ClientError> {
        let left = deadline.remaining(self.clock.now()).unwrap_or_default();
        let value_bytes = self.value_bytes(left)? as usize;
        let connection = Arc::clone(&self.session().connection);
        let fits_request = connection.max_request().saturating_sub(REQUEST_HEAD) / K::KEY_BYTES;
        let fits_reply = connection.max_reply().saturating_sub(REPLY_HEADS.1) / (REPLY_HEADS.0 + value_bytes);
        let most = fits_request.min(fits_reply).max(1);
        let (mut keys, mut encoded, mut request, mut reply) =
            (keys.peekable(), Vec::new(), Vec::new(), Vec::new());
        while keys.peek().is_some() {
            encoded.clear();
            for key in keys.by_ref().take(most) {
                let at = encoded.len();
                encoded.resize(at + K::KEY_BYTES, 0);
                K::encode(&key, &mut encoded[at..]);
            }
            let count = encoded.len() / K::KEY_BYTES;
            Request::Get(&encoded).encode::<K>(&mut request);
            connection.call(&request, &mut reply, deadline)?;
            let answers = decode_reply(&reply)?.chunks_exact(REPLY_HEADS.0 + value_bytes);
            if answers.len() < count {
                return Err(cut_short().into());
            }
            self.tally.offloaded.add(count as u64);
            answers.take(count).for_each(|answer| answer_of(answer, &mut take));
        }
        Ok(())
    }
}

/// Takes the answer for one key: status, token, value.
fn answer_of(answer: &[u8], take: &mut impl FnMut(Option<u32>, &[u8])) {
    let (head, value) = answer.split_at(REPLY_HEADS.0.min(answer.len()));
    match (head.first(), head.last_chunk::<8>()) {
        (Some(0), Some(token)) => {
            take(Some(RecordToken::from_bits(u64::from_le_bytes(*token)).version()), value);
        }
        _ => take(None, &[]),
    }
}

fn cut_short() -> MessageError {
    MessageError::Malformed("the reply to a lookup is cut short".into())
}
