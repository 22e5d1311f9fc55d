//! Delivery of a call's results: fetched by READs, one result batch after another, or sent.

use std::time::{Duration, Instant};

use fpcache_fabric::{Connection, Deadline, Endpoint, FabricError, RemoteAddr};

use super::{Client, Results, RfError, Way};
use crate::layout::{DAMAGED, Entry, HEAD, Head, SERVED, TOO_LONG, take_entry, u64_at};
use crate::messages::{FETCH, FORGOTTEN, HERE, Message, NO_SUCH_BATCH, UNKNOWN};
use crate::mode::Mode;
use crate::server::TIME_UNIT;

/// The longest rest between two fetches of a call that has had more than R of them.
const LONGEST_REST: Duration = Duration::from_micros(64);

impl<C: Connection> Client<C> {
    /// Waits for the reply that the connection owes, if it owes one.
    pub(super) fn settle(&mut self, deadline: Deadline) {
        let owed = self.slots.iter_mut().find(|slot| matches!(slot.way, Way::Posted(_)));
        if let Some(slot) = owed
            && let Way::Posted(posted) = std::mem::replace(&mut slot.way, Way::Free)
        {
            let mut reply = Vec::new();
            let outcome = self.connection.wait(posted, &mut reply, deadline);
            slot.way = Way::Arrived(outcome.map(|()| reply));
        }
    }

    pub(super) fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { area: self.area, offset: self.offset + offset }
    }

    /// READs into `reply`.
    pub(super) fn read(&mut self, offset: u64, len: usize) -> Result<(), FabricError> {
        self.batch.clear();
        let landing = self.batch.read(self.at(offset), len);
        self.endpoint.run(&mut self.batch)?;
        self.reply.clear();
        self.reply.extend_from_slice(self.batch.bytes(landing));
        Ok(())
    }

    /// Fetches all result batches of a call, or has them sent when that takes too long.
    pub(super) fn fetch(
        &mut self,
        number: u16,
        sequence: u32,
        rpc: u16,
        results: &mut Results,
        deadline: Deadline,
    ) -> Result<(), RfError> {
        let (mut failed, mut part) = (0, 0u32);
        let (waits_since, spins_for) = (self.clock.now(), self.spin.budget());
        let mut has_yielded = false;
        loop {
            let began = self.clock.now();
            let Some(head) = self.fetch_once(number, sequence, part)? else {
                failed += 1;
                self.counts.failed += 1;
                let now = self.clock.now();
                self.learn(began, now);
                if failed == self.options.retries.saturating_add(1)
                    && part == 0
                    && self.modes.exceeded(rpc) == Mode::Reply
                {
                    return self.have_sent(number, sequence, rpc, results, deadline);
                }
                if deadline.has_passed(now) {
                    return Err(FabricError::DeadlinePassed { waiting_for: "the server's results" }.into());
                }
                if now.saturating_duration_since(waits_since) >= spins_for {
                    // Where memory is mapped a look takes no time. Who sleeps leaves the processor
                    // to the server, and gets it back sooner among many than who only yields.
                    self.clock.sleep(Duration::from_micros(1));
                    has_yielded = true;
                }
                if self.modes.is_exceeded(failed) {
                    let over = (failed - self.options.retries).min(6);
                    self.clock.sleep((Duration::from_micros(1) * (1 << over)).min(LONGEST_REST));
                }
                continue;
            };
            if part == 0 && !self.modes.is_exceeded(failed) {
                self.modes.fetched(rpc);
            }
            let mut reply = std::mem::take(&mut self.reply);
            let taken = self.take(&head, &reply[HEAD..], number, results, deadline);
            reply.clear();
            self.reply = reply;
            taken?;
            if head.is_last() {
                match has_yielded {
                    true => self.spin.note_failure(),
                    false => self.spin.note_success(),
                }
                return Ok(());
            }
            // Parts that bring nothing, or more than was asked for, would have no end.
            let asked = self.slots.get(usize::from(number)).map_or(0, |slot| usize::from(slot.entries));
            if head.entries == 0 || results.len() > asked {
                return Err(RfError::Malformed("its number of results"));
            }
            part += 1;
            if part.is_multiple_of(u32::from(self.shape.parts)) {
                // There is room for as many more.
                let word = u64::from(sequence) << 32 | u64::from(part);
                self.batch.clear();
                self.batch.write(self.at(self.shape.acknowledgement(number)), &word.to_le_bytes());
                self.endpoint.run(&mut self.batch)?;
            }
        }
    }

    /// What a fetch takes, by one that began and ended then.
    pub(super) fn learn(&mut self, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        self.fetch_time = (self.fetch_time * 7 + took) / 8;
    }

    /// Looks for one result batch: its bytes are in `reply` if it is there and whole.
    pub(super) fn fetch_once(
        &mut self,
        number: u16,
        sequence: u32,
        part: u32,
    ) -> Result<Option<Head>, RfError> {
        let (at, most) = (self.shape.result(number, part), HEAD + self.shape.capacity());
        let first = self.options.fetch_bytes.clamp(HEAD, most);
        self.read(at, first)?;
        let word = |at| u64_at(&self.reply, at).unwrap_or(0);
        let Some(head) = Head::of([word(0), word(8)]) else { return Ok(None) };
        if head.sequence != sequence || u32::from(head.number) != part {
            return Ok(None);
        }
        let len = HEAD + head.bytes as usize;
        if len > most {
            // A torn head, perhaps.
            return Ok(None);
        }
        if len > first {
            self.counts.second += 1;
            self.batch.clear();
            let landing = self.batch.read(self.at(at + first as u64), len - first);
            self.endpoint.run(&mut self.batch)?;
            self.reply.extend_from_slice(self.batch.bytes(landing));
        }
        self.reply.truncate(len);
        Ok(Head::decode(self.key, &self.reply).map(|(head, _)| head))
    }

    /// Takes the entries of a result batch.
    pub(super) fn take(
        &mut self,
        head: &Head,
        payload: &[u8],
        slot: u16,
        results: &mut Results,
        deadline: Deadline,
    ) -> Result<(), RfError> {
        match head.outcome() {
            SERVED => {}
            DAMAGED => return Err(RfError::Damaged),
            TOO_LONG => return Err(RfError::ResultsTooLong),
            _ => return Err(RfError::Malformed("its outcome")),
        }
        let mut rest = payload;
        for _ in 0..head.entries {
            match take_entry(&mut rest).ok_or(RfError::Malformed("an entry"))? {
                Entry::Short(entry) => results.push(entry),
                Entry::Long(len) => {
                    let entry = results.len() as u16;
                    self.message.clear();
                    Message::Long { slot, sequence: head.sequence, entry }.encode(&mut self.message);
                    self.settle(deadline);
                    let mut reply = Vec::new();
                    self.connection.call(&self.message, &mut reply, deadline)?;
                    match reply.split_first() {
                        Some((&HERE, bytes)) if bytes.len() as u64 == len => results.push(bytes),
                        Some((&NO_SUCH_BATCH, _)) => return Err(RfError::Lost),
                        _ => return Err(RfError::Malformed("a long result")),
                    }
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(RfError::Malformed("what follows its entries")) }
    }

    /// Has the results of a request that lies at the server sent, which is the mode flag's WRITE
    /// there.
    pub(super) fn have_sent(
        &mut self,
        number: u16,
        sequence: u32,
        rpc: u16,
        results: &mut Results,
        deadline: Deadline,
    ) -> Result<(), RfError> {
        self.settle(deadline);
        self.message.clear();
        Message::Await { slot: number, sequence }.encode(&mut self.message);
        let mut reply = std::mem::take(&mut self.reply);
        let outcome = self.connection.call(&self.message, &mut reply, deadline);
        let taken = match (outcome, reply.first()) {
            (Err(error), _) => Err(error.into()),
            (Ok(()), Some(&FETCH)) => {
                self.reply = reply;
                return self.fetch(number, sequence, rpc, results, deadline);
            }
            (Ok(()), _) => self.replied(rpc, sequence, &reply, results),
        };
        self.reply = reply;
        taken
    }

    /// Takes results that were sent.
    pub(super) fn replied(
        &mut self,
        rpc: u16,
        sequence: u32,
        reply: &[u8],
        results: &mut Results,
    ) -> Result<(), RfError> {
        let batch = match reply.split_first() {
            Some((&HERE, batch)) => batch,
            Some((&(NO_SUCH_BATCH | FORGOTTEN), _)) => return Err(RfError::Lost),
            Some((&UNKNOWN, _)) => return Err(RfError::Damaged),
            _ => return Err(RfError::Malformed("a reply")),
        };
        let (head, payload) =
            Head::decode(self.key, batch).ok_or(RfError::Malformed("a reply's checksum"))?;
        if head.sequence != sequence {
            return Err(RfError::Lost);
        }
        self.counts.replied += 1;
        self.modes.replied(rpc, TIME_UNIT * u32::from(head.auxiliary), self.fetch_time);
        // A reply has all entries in it, however long.
        self.take(&head, payload, 0, results, Deadline::NONE)
    }
}
