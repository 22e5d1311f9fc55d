//! Reads that are awaited.

use std::ops::RangeBounds;
use std::pin::pin;
use std::time::Instant;

use fpcache::key_space::BuildKeys;
use fpcache::layout::RecordToken;
use fpcache::read::{Outcome, Side, Wanted, contains, look_up};
use fpcache_fabric::FabricError;
use tokio::task::{consume_budget, yield_now};

use super::client::{AsyncByteClient, AsyncClient, AsyncTableClient, Route};
use super::group::{Keys, Kind, Replier, ReplyTo};
use super::route::{IN_PLACE, ReadRoute};
use super::unanswered::HAND_OVER;
use crate::client::{Record, with_core};
use crate::core::{Core, Section, SectionRead, check_lengths};
use crate::error::ClientError;
use crate::key::AsKey;
use crate::mapped::MappedNode;
use crate::span::Span;

impl<K: BuildKeys> AsyncTableClient<K> {
    /// The value of `key`, `None` if it is absent. Costs what
    /// [`TableClient::get`](crate::TableClient::get) does; tasks that ask at the same time over
    /// sockets share its round trips.
    pub async fn get(&self, key: impl AsKey<K>) -> Result<Option<Vec<u8>>, ClientError> {
        if let Some(core) = self.in_place() {
            consume_budget().await;
            let take = |_: &Outcome, value: Option<&[u8]>| value.map(<[u8]>::to_vec);
            let found = core.at_once(|buffers, table| {
                look_up(&mut buffers.endpoint, table, &mut buffers.lookup, key.as_key(), take)
            });
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.ask(Kind::Value, key.as_key(), ReplyTo::Value).await
    }

    /// Whether `key` is there, without its value. As
    /// [`TableClient::contains`](crate::TableClient::contains).
    pub async fn contains(&self, key: impl AsKey<K>) -> Result<bool, ClientError> {
        if let Some(core) = self.in_place() {
            consume_budget().await;
            let take = |outcome: &Outcome| outcome.version.is_some();
            let found = core.at_once(|buffers, table| {
                contains(&mut buffers.endpoint, table, &mut buffers.lookup, key.as_key(), take)
            });
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.ask(Kind::Presence, key.as_key(), ReplyTo::IsThere).await
    }

    /// What reads without waiting, where memory is mapped.
    fn in_place(&self) -> Option<&Core<K, MappedNode>> {
        match &self.shared.route {
            Route::One(ReadRoute::InPlace(core)) => Some(core),
            _ => None,
        }
    }

    /// A record's value with the token that [`compare_and_set`](Self::compare_and_set) takes.
    pub async fn get_versioned(
        &self,
        key: impl AsKey<K>,
    ) -> Result<Option<(Vec<u8>, RecordToken)>, ClientError> {
        self.ask(Kind::Value, key.as_key(), ReplyTo::Versioned).await
    }

    /// The values of `keys`, in their order. As
    /// [`TableClient::multi_get`](crate::TableClient::multi_get): the deadline is that of all of
    /// them together.
    ///
    /// # Errors
    /// As for [`TableClient::get`](crate::TableClient::get); the group fails as a whole.
    pub async fn multi_get(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        self.ask_all(Kind::Value, owned(keys), ReplyTo::Values).await
    }

    /// Whether each of `keys` is there, in their order. As
    /// [`TableClient::multi_contains`](crate::TableClient::multi_contains).
    ///
    /// # Errors
    /// As for [`TableClient::get`](crate::TableClient::get); the group fails as a whole.
    pub async fn multi_contains(&self, keys: &[impl AsKey<K>]) -> Result<Vec<bool>, ClientError> {
        self.ask_all(Kind::Presence, owned(keys), ReplyTo::AreThere).await
    }

    /// The record with the greatest key not above `key`. As
    /// [`TableClient::floor`](crate::TableClient::floor).
    pub async fn floor(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, key.as_key()).await
    }

    /// The record with the least key not below `key`. As
    /// [`TableClient::ceiling`](crate::TableClient::ceiling).
    pub async fn ceiling(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, key.as_key()).await
    }

    /// The record with the least key. As [`TableClient::first`](crate::TableClient::first).
    pub async fn first(&self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Ceiling, K::lowest()).await
    }

    /// The record with the greatest key. As [`TableClient::last`](crate::TableClient::last).
    pub async fn last(&self) -> Result<Option<Record<K>>, ClientError> {
        self.nearest(Side::Floor, K::highest()).await
    }

    /// [`floor`](Self::floor) for each of `keys`, in their order. As
    /// [`TableClient::multi_floor`](crate::TableClient::multi_floor).
    ///
    /// # Errors
    /// As for [`TableClient::floor`](crate::TableClient::floor); the group fails as a whole.
    pub async fn multi_floor(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.all_nearest(Side::Floor, owned(keys)).await
    }

    /// [`ceiling`](Self::ceiling) for each of `keys`, in their order. As
    /// [`TableClient::multi_ceiling`](crate::TableClient::multi_ceiling).
    ///
    /// # Errors
    /// As for [`TableClient::floor`](crate::TableClient::floor); the group fails as a whole.
    pub async fn multi_ceiling(&self, keys: &[impl AsKey<K>]) -> Result<Vec<Option<Record<K>>>, ClientError> {
        self.all_nearest(Side::Ceiling, owned(keys)).await
    }

    /// How many keys there are from `start` up to below `end`. As
    /// [`TableClient::count`](crate::TableClient::count), a part at a time on a thread that may
    /// block, of which few are taken at a time. The deadline is of each part.
    pub async fn count(&self, start: impl AsKey<K>, end: impl AsKey<K>) -> Result<u64, ClientError> {
        self.count_of(Span::between(start, end)).await
    }

    /// How many keys there are that are not below `start`. See [`count`](Self::count).
    pub async fn count_from(&self, start: impl AsKey<K>) -> Result<u64, ClientError> {
        self.count_of(Span::not_below(start)).await
    }

    /// Up to `limit` keys in their order, from the least not below `start` on, without values. As
    /// [`TableClient::scan_keys`](crate::TableClient::scan_keys), a part at a time on a thread that
    /// may block, as [`count`](Self::count).
    pub async fn scan_keys(&self, start: impl AsKey<K>, limit: usize) -> Result<Vec<K::Owned>, ClientError> {
        self.keys_of(Section::up(Span::not_below(start), limit)).await
    }

    /// Up to `limit` keys from `start` to `end`, exclusive. As [`scan_keys`](Self::scan_keys).
    pub async fn scan_range_keys(
        &self,
        start: impl AsKey<K>,
        end: impl AsKey<K>,
        limit: usize,
    ) -> Result<Vec<K::Owned>, ClientError> {
        self.keys_of(Section::up(Span::between(start, end), limit)).await
    }

    /// Up to `limit` keys of a range in descending order, from the greatest on. As
    /// [`scan_keys`](Self::scan_keys).
    pub async fn scan_keys_back<Q: AsKey<K>>(
        &self,
        keys: impl RangeBounds<Q>,
        limit: usize,
    ) -> Result<Vec<K::Owned>, ClientError> {
        match Span::of(&keys) {
            Some(span) => self.keys_of(Section::down(span, limit)).await,
            None => Ok(Vec::new()),
        }
    }

    async fn keys_of(&self, section: Section<K>) -> Result<Vec<K::Owned>, ClientError> {
        self.fold_keys(section, Vec::new(), |keys, key| keys.push(key.to_owned())).await
    }

    async fn count_of(&self, span: Span<K>) -> Result<u64, ClientError> {
        self.fold_keys(Section::up(span, usize::MAX), 0, |count, _| *count += 1).await
    }

    /// What `add` makes of the keys of a section, which are read a part at a time.
    async fn fold_keys<R: Send + 'static>(
        &self,
        section: Section<K>,
        mut all: R,
        add: fn(&mut R, &K::Key),
    ) -> Result<R, ClientError> {
        let mut rest = Some(section);
        while let Some(section) = rest.take_if(|rest| !rest.is_over()) {
            let (client, until) = (self.client.clone(), self.until());
            let threads = match &self.shared.route {
                Route::One(_) => self.shared.threads.clone(),
                Route::Divided(divided) => divided.threads(&self.shared.threads, &section),
            };
            let part = move || {
                // Not what it had when it began to wait for the thread: it is waited for no longer.
                let left = until.saturating_duration_since(Instant::now());
                let mut limit = section.limit;
                let take = |key: &K::Key, _: &[u8]| {
                    add(&mut all, key);
                    limit -= 1;
                };
                let span = with_core!(&client.transport, core => {
                    core.here(|held| core.scan_part(held, (&section, Wanted::Presence), left, take))
                })?;
                Ok((all, span.map(|span| Section { span, limit, ..section })))
            };
            (all, rest) = self.in_time(until, pin!(async { threads.run(part).await? })).await?;
        }
        Ok(all)
    }

    async fn ask<R>(
        &self,
        kind: Kind,
        key: &K::Key,
        answer: impl Fn(Replier<R>) -> ReplyTo<K>,
    ) -> Result<R, ClientError> {
        let (key, until, threads) = (key.to_owned(), self.until(), &self.shared.threads);
        match &self.shared.route {
            // On the heap, so that the future of a call to one memory node stays small.
            Route::Divided(divided) => {
                self.in_time(until, Box::pin(divided.ask(threads, (kind, key), until, answer)).as_mut()).await
            }
            Route::One(way) => {
                self.in_time(until, pin!(way.ask(threads, (kind, Keys::One(key)), until, answer))).await
            }
        }
    }

    async fn nearest(&self, side: Side, key: &K::Key) -> Result<Option<Record<K>>, ClientError> {
        Ok(self.all_nearest(side, vec![key.to_owned()]).await?.pop().flatten())
    }

    async fn all_nearest(
        &self,
        side: Side,
        keys: Vec<K::Owned>,
    ) -> Result<Vec<Option<Record<K>>>, ClientError> {
        let Route::Divided(divided) = &self.shared.route else {
            return self.ask_all(Kind::Nearest(side), keys, ReplyTo::AllNearest).await;
        };
        let (until, threads) = (self.until(), &self.shared.threads);
        self.in_time(until, Box::pin(divided.all_nearest(threads, (side, keys), until)).as_mut()).await
    }

    async fn ask_all<R>(
        &self,
        kind: Kind,
        keys: Vec<K::Owned>,
        answer: impl Fn(Replier<Vec<R>>) -> ReplyTo<K>,
    ) -> Result<Vec<R>, ClientError> {
        let (until, threads) = (self.until(), &self.shared.threads);
        match &self.shared.route {
            Route::Divided(divided) => {
                self.in_time(until, Box::pin(divided.ask_all(threads, (kind, keys), until, answer)).as_mut())
                    .await
            }
            Route::One(way) if keys.len() <= IN_PLACE || !matches!(way, ReadRoute::InPlace(_)) => {
                self.in_time(until, pin!(way.ask(threads, (kind, Keys::Many(keys)), until, answer))).await
            }
            Route::One(way) => {
                // A piece at a time, so that others have their turns.
                let mut all = Vec::with_capacity(keys.len());
                for piece in keys.chunks(IN_PLACE) {
                    if !all.is_empty() {
                        yield_now().await;
                        if Instant::now() >= until {
                            let waiting_for = "the other keys of the group";
                            return Err(FabricError::DeadlinePassed { waiting_for }.into());
                        }
                    }
                    let asked = (kind, Keys::Many(piece.to_vec()));
                    all.extend(self.in_time(until, pin!(way.ask(threads, asked, until, &answer))).await?);
                }
                Ok(all)
            }
        }
    }

    /// The first part of a section.
    pub(super) async fn scan_part(&self, section: Section<K>) -> Result<SectionRead<K>, ClientError> {
        let (until, threads) = (self.until(), &self.shared.threads);
        let handed_over = until + HAND_OVER;
        match &self.shared.route {
            Route::Divided(divided) => {
                self.in_time(handed_over, Box::pin(divided.scan_part(threads, section, until)).as_mut()).await
            }
            Route::One(way) => {
                let asked = (Kind::Scan, Keys::One(section.span.start.clone()));
                let answer = |to| ReplyTo::Scanned(section.clone(), to);
                self.in_time(handed_over, pin!(way.ask(threads, asked, until, answer))).await
            }
        }
    }
}

impl AsyncClient {
    /// Writes the values of `keys`, as little-endian words, to `values`, and whether each key is
    /// there to `found`; both are as long as `keys`. The value of an absent key is 0. Returns the
    /// number of keys that are there. As [`Reader::multi_get_u64`](crate::Reader::multi_get_u64),
    /// at the cost of [`multi_get`](Self::multi_get) and with its deadline.
    ///
    /// # Errors
    /// As for [`TableClient::get`](crate::TableClient::get): the arrays are as they were then;
    /// [`NotWords`](ClientError::NotWords) if values have another length,
    /// [`ArrayLengths`](ClientError::ArrayLengths).
    pub async fn multi_get_u64(
        &self,
        keys: &[u64],
        values: &mut [u64],
        found: &mut [bool],
    ) -> Result<usize, ClientError> {
        check_lengths(keys.len(), Some(values.len()), found.len())?;
        let answers = self.ask_all(Kind::Value, keys.to_vec(), ReplyTo::Words).await?;
        for ((value, found), answer) in values.iter_mut().zip(&mut *found).zip(answers) {
            (*value, *found) = (answer.unwrap_or(0), answer.is_some());
        }
        Ok(found.iter().filter(|found| **found).count())
    }
}

impl AsyncByteClient {
    /// The number of keys that begin with `prefix`. See [`count`](AsyncTableClient::count).
    pub async fn count_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, ClientError> {
        self.count_of(Span::of_prefix(prefix.as_ref())).await
    }
}

fn owned<K: BuildKeys>(keys: &[impl AsKey<K>]) -> Vec<K::Owned> {
    keys.iter().map(|key| key.as_key().to_owned()).collect()
}
