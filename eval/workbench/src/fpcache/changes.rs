//! Changes, which the memory node makes: a request each, or [together](super::together).

use std::rc::Rc;

use fpcache::layout::RecordToken;
use fpcache::message::{Sent, WriteBatch, WriteKind, WriteOperation, WriteReply, WriteStatus, decode_reply};

use super::client::Client;
use super::keys::{Numbered, put_value};
use super::options::Options;
use super::together::Change;
use crate::bench::{Answer, Progress};

/// Bytes of a reply beside what it says of each change.
const REPLY: u32 = 16;

impl<K: Numbered> Client<K> {
    pub(super) async fn write(&mut self, kind: WriteKind, key: u64, value: u64) -> Answer {
        let (node, me) = (self.shared.node_of(key), self.me);
        let change = Change { client: me, kind, key, value };
        let Some(sends) = self.shared.queue(me, node).map(|queue| queue.borrow_mut().push(change)) else {
            return self.send(node, &[change]).await.pop().unwrap_or_else(missing);
        };
        if !sends {
            self.tell(Progress::Waits).await;
            // Another client has sent it, or it is this one's turn.
            if let Some(answer) = self.shared.mail[me].borrow_mut().answer.take() {
                return answer;
            }
        }
        self.send_all(node).await
    }

    /// Sends what waits for a memory node, and tells the others whose changes these are; the first
    /// is its own.
    async fn send_all(&mut self, node: usize) -> Answer {
        let shared = Rc::clone(&self.shared);
        let queue = shared.queue(self.me, node);
        let changes = queue.map(|queue| queue.borrow_mut().take()).unwrap_or_default();
        let mut answers = self.send(node, &changes).await.into_iter();
        let own = answers.next().unwrap_or_else(missing);
        for change in changes.iter().skip(1) {
            let answer = answers.next().unwrap_or_else(missing);
            shared.mail[change.client].borrow_mut().answer = Some(answer);
            shared.woken.borrow_mut().push(change.client);
        }
        if let Some(next) = queue.and_then(|queue| queue.borrow_mut().next()) {
            shared.woken.borrow_mut().push(next);
        }
        own
    }

    /// Sends changes as one request; how each ended.
    async fn send(&mut self, node: usize, changes: &[Change]) -> Vec<Answer> {
        self.requests += 1;
        let mut batch = WriteBatch::default();
        for change in changes {
            put_value(change.value, self.shared.sizes.value, &mut self.value);
            batch.push::<K>(&WriteOperation {
                kind: change.kind,
                key: K::of_number(change.key, self.shared.sizes.key),
                hint: None,
                expected: RecordToken::default(),
                value: Sent::Here(&self.value),
            });
        }
        let write = batch.request(self.me as u64 + 1, self.requests, false);
        write.encode::<K>(0, &mut self.request);
        let count = changes.len();
        let reply = REPLY + (count * WriteReply::BYTES) as u32;
        self.call_for(node, reply, (count as u64 - 1) * Options::CHANGE).await;
        match decode_reply(&self.reply) {
            Err(refusal) => vec![Answer::Failed(refusal.to_string()); count],
            Ok(body) => body.chunks(WriteReply::BYTES).map(written).collect(),
        }
    }
}

fn missing() -> Answer {
    Answer::Failed("the memory node has sent too few replies".into())
}

/// What the memory node's reply says of a change.
fn written(reply: &[u8]) -> Answer {
    match WriteReply::decode(reply).map(|reply| reply.status) {
        Some(WriteStatus::Done) => Answer::Written,
        Some(WriteStatus::Absent) => Answer::Absent,
        other => Answer::Failed(format!("the memory node answered {other:?}")),
    }
}
