//! The last resort: having the memory node's processor look keys up.

use std::sync::Arc;

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordToken;
use fpcache::message::keys::{key_bytes, put_key};
use fpcache::message::{Keys, MessageError, Request, decode_reply};
use fpcache::read::{LookupScratch, Outcome, Outcomes};
use fpcache_fabric::{Connection, Deadline};

use super::recover::Retry;
use super::write::check_key;
use super::{Connector, Core};
use crate::error::ClientError;

/// Bytes of a reply beside the values, per key and in all.
const REPLY_HEADS: (usize, usize) = (16, 8);
/// Bytes of a request beside the keys.
const REQUEST_HEAD: usize = 16;

impl<K: BuildKeys, T: Connector> Core<K, T> {
    /// Looks one key up.
    #[cold]
    pub(super) fn look_up_offloaded<R>(
        &self,
        key: &K::Key,
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
        Request::Get(Keys { count: 0, bytes: &[] }).encode::<K>(&mut request);
        let connection = Arc::clone(&self.session().connection);
        // Whether it heard is seen by what the next attempt finds.
        let _ = connection.call(&request, &mut reply, retry.deadline(&*self.clock));
    }

    /// Looks a group of keys up.
    #[cold]
    pub(super) fn lookup_offloaded<'k, R>(
        &self,
        keys: impl Iterator<Item = &'k K::Key>,
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
    fn offload<'k>(
        &self,
        keys: impl Iterator<Item = &'k K::Key>,
        deadline: Deadline,
        mut take: impl FnMut(Option<u32>, &[u8]),
    ) -> Result<(), ClientError> {
        let left = deadline.remaining(self.clock.now()).unwrap_or_default();
        let shape = self.shape(left)?;
        let value_bytes = shape.value_bytes.unwrap_or(shape.room) as usize;
        let connection = Arc::clone(&self.session().connection);
        let room = connection.max_request().saturating_sub(REQUEST_HEAD);
        let fits_reply = connection.max_reply().saturating_sub(REPLY_HEADS.1) / (REPLY_HEADS.0 + value_bytes);
        // A key that no table can hold has no place in a request either; the empty string is absent as it is.
        let keys = keys.map(|key| if check_key::<K>(key).is_ok() { key } else { K::lowest() });
        let (mut keys, mut encoded, mut request, mut reply) =
            (keys.peekable(), Vec::new(), Vec::new(), Vec::new());
        while keys.peek().is_some() {
            encoded.clear();
            let mut count = 0;
            while let Some(key) = keys.next_if(|key| {
                count == 0 || (encoded.len() + key_bytes::<K>(key) <= room && count < fits_reply)
            }) {
                put_key::<K>(key, &mut encoded);
                count += 1;
            }
            // A request has far fewer keys than a u32 counts.
            let asked = Keys { count: count as u32, bytes: &encoded };
            Request::Get(asked).encode::<K>(&mut request);
            connection.call(&request, &mut reply, deadline)?;
            let mut answers = decode_reply(&reply)?;
            self.tally.offloaded.add(count as u64);
            for _ in 0..count {
                answers = take_answer(answers, &mut take).ok_or_else(cut_short)?;
            }
        }
        Ok(())
    }
}

/// Takes the answer for one key: status, length, token, value; returns what lies behind.
fn take_answer<'a>(bytes: &'a [u8], take: &mut impl FnMut(Option<u32>, &[u8])) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_first_chunk::<{ REPLY_HEADS.0 }>()?;
    let len = u32::from_le_bytes(*head[4..].first_chunk()?);
    let token = RecordToken::from_bits(u64::from_le_bytes(*head.last_chunk()?));
    let (value, behind) = rest.split_at_checked(len as usize)?;
    take((head[0] == 0).then_some(token.version()), value);
    Some(behind)
}

fn cut_short() -> MessageError {
    MessageError::Malformed("the reply to a lookup is cut short".into())
}
