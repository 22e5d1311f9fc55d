//! Groups as they are built: a memory node in this process, and a client that looks keys up by
//! their tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use fpcache::layout::Grouping;
use fpcache::message::WriteStatus;
use fpcache_client::{
    Answers, Changes, Client, ClientConfig, Found, GroupBytes, Plan, PlanChoice, RecordShape,
    TableParameters, U64Keys,
};
use fpcache_datasets::count::human;
use fpcache_datasets::requests::{Growth, InsertOrder};
use fpcache_datasets::{Bar, Dataset};
use fpcache_fabric::{HugePages, SharedMemory};
use fpcache_memserver::MemoryNode;
use rustix::time::{ClockId, clock_gettime};

use super::measure::Setting;
use crate::machine::split_mix;
use crate::node::capacity_for;
use crate::systems::fpcache::{Records, load_records};

/// Bytes of a slot beside its value: its word and the key.
pub const BESIDE_VALUE: u64 = 16;
/// Keys of a call that reads several.
const TOGETHER: usize = 32;
/// Inserts of a call.
const INSERTS: usize = 64;
/// A growing region is this many times as large as the data take when loaded, as rebuilt segments
/// are less full and old ones wait before their memory is used again. Pages that are never written
/// take no memory.
const ROOM: u64 = 3;
/// Loads of each kind, of which the fastest counts.
const LOADS: u32 = 3;

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Keys that the table had in the end.
    pub keys: u64,
    /// Those that were inserted.
    pub inserted: u64,
    /// As a share of the others: what was asked for.
    pub share: f64,
    /// Keys that were looked up and counted.
    pub present: Shares,
    /// Absent keys that were.
    pub absent: Shares,
    /// Answers that were wrong, of all lookups.
    pub wrong: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of the directory with its models.
    pub directory_bytes: u64,
    /// Bytes of all that the client keeps of the table.
    pub bytes: u64,
    /// Those of the tables of groups.
    pub parts: GroupBytes,
    /// Records that rebuilds copied.
    pub copies: u64,
}

/// Lookups, and what they cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// How many.
    pub count: u64,
    /// Those that one READ of no more than a group's slots settled.
    pub one_read: u64,
    /// Bytes that were READ for all.
    pub bytes: u64,
}

impl Shares {
    fn add(&mut self, found: &Found, group_bytes: u64) {
        let cost = &found.cost;
        let is_one = found.plan == Plan::Groups && (cost.round_trips, cost.reads) == (1, 1);
        self.count += 1;
        self.one_read += u64::from(is_one && cost.bytes <= group_bytes);
        self.bytes += cost.bytes;
    }

    /// The share that one READ settled.
    pub fn in_one_read(&self) -> f64 {
        self.one_read as f64 / self.count.max(1) as f64
    }

    /// Bytes READ for each.
    pub fn bytes_read(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }
}

/// The parameters of tables with groups of slots of this setting's bytes; `None` if such slots are
/// in no groups.
pub fn parameters(setting: &Setting) -> Option<TableParameters> {
    let value_bytes = u32::try_from(setting.slot_bytes.checked_sub(BESIDE_VALUE)?).ok()?;
    let grouping = Grouping::for_slots(setting.form.built()?, usize::try_from(setting.slot_bytes).ok()?)?;
    let (epsilon, fill) = (setting.epsilon, setting.fill);
    let is_whole = setting.slot_bytes.is_multiple_of(8) && value_bytes > 0;
    let parameters = TableParameters {
        shape: RecordShape::fixed(8, value_bytes),
        epsilon,
        fill,
        groups: Some(grouping),
        ..TableParameters::default()
    };
    is_whole.then_some(parameters)
}

/// The value of a key.
fn value_of(key: u64, out: &mut Vec<u8>, value_bytes: usize) {
    out.clear();
    out.resize(value_bytes, 0);
    let mut state = key;
    let word = split_mix(&mut state).to_le_bytes();
    out.iter_mut().zip(word.into_iter().cycle()).for_each(|(to, from)| *to = from);
}

/// What the memory node's processor spends on each key more for its lying in a group, when it loads
/// the keys: the fastest of several loads with groups, less the fastest of as many without, in
/// nanoseconds.
///
/// # Errors
/// If the memory cannot be had.
pub fn grouping_ns(keys: &[u64], parameters: TableParameters, bar: &Bar) -> anyhow::Result<f64> {
    let without = TableParameters { groups: None, ..parameters };
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..LOADS {
        for (parameters, fastest) in [without, parameters].into_iter().zip(&mut fastest) {
            let load = || load_time(keys, parameters);
            *fastest = bar.during("loading with and without groups", 1, load)?.min(*fastest);
        }
    }
    let [without, with] = fastest.map(|time| time.as_secs_f64() * 1e9 / keys.len().max(1) as f64);
    Ok((with - without).max(0.0))
}

/// What a memory node spends on loading the keys, with every page of its region touched before.
fn load_time(keys: &[u64], parameters: TableParameters) -> anyhow::Result<Duration> {
    let capacity = usize::try_from(capacity_for::<U64Keys>(&parameters, keys.len() as u64))?;
    let region = Arc::new(SharedMemory::anonymous_with(capacity, HugePages::IfAvailable)?);
    region.fill_words(0, capacity / 8, 0)?;
    let mut node = MemoryNode::<U64Keys>::new(region, 1, 0, Instant::now())?;
    let word = |at: usize, out: &mut [u8]| {
        out.iter_mut().zip(keys[at].to_le_bytes().into_iter().cycle()).for_each(|(to, from)| *to = from);
    };
    let begun = thread_time();
    node.load(parameters, keys.iter().copied(), word).map_err(|refusal| anyhow!(refusal.to_string()))?;
    Ok(thread_time().saturating_sub(begun))
}

/// What this thread has spent of a processor's time: on a machine that others use as well, clocks
/// tell of them.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is ever negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Has a memory node load the keys but for those that are inserted afterwards, `share` for each
/// that is loaded, and looks up as many of them as `lookups`, and as many that are absent, after
/// every key has been looked up once.
///
/// # Errors
/// If the memory node fails, or refuses a change.
pub fn measure(
    dataset: &Dataset,
    parameters: TableParameters,
    share: f64,
    lookups: u64,
    seed: u64,
    bar: &Bar,
) -> anyhow::Result<Figures> {
    let keys = dataset.keys();
    let count = (keys.len() as f64 * share / (1.0 + share)).round() as usize;
    let growth = Growth::split(keys, count, InsertOrder::Random, seed);
    let mut store = Store::load(parameters, &growth.loaded, keys.len() as u64, share, bar)?;
    let phase = format!("inserting {} keys", human(growth.inserts.len() as u64));
    bar.during(&phase, 1, || store.insert(&growth.inserts))?;
    bar.during("looking at every record", 1, || store.read_all(keys))?;
    let Growth { inserts, loaded } = growth;
    let count = inserts.len() as u64;
    drop((inserts, loaded));
    let mut figures = bar.during("counting READs", 1, || store.count(keys, lookups, seed))?;
    let table = store.client.table()?;
    figures.keys = keys.len() as u64;
    (figures.inserted, figures.share) = (count, share);
    (figures.directory_bytes, figures.bytes, figures.parts) =
        (table.model_bytes, table.bytes, table.group_parts);
    let node = store.client.stats()?;
    (figures.segments, figures.copies) = (node.segments, node.copies);
    Ok(figures)
}

/// A memory node in this process, and a client of it.
struct Store {
    client: Client,
    value_bytes: usize,
    /// Bytes of a READ of a group.
    group_bytes: u64,
    wrong: u64,
}

/// Keys to load.
struct Loaded<'a> {
    keys: &'a [u64],
    value_bytes: usize,
}

impl Records<U64Keys> for Loaded<'_> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn key<'a>(&'a self, i: usize, _: &'a mut Vec<u8>) -> u64 {
        self.keys[i]
    }

    fn write(&self, i: usize, value: &mut Vec<u8>) {
        value_of(self.keys[i], value, self.value_bytes);
    }
}

impl Store {
    fn load(
        parameters: TableParameters,
        keys: &[u64],
        most_keys: u64,
        share: f64,
        bar: &Bar,
    ) -> anyhow::Result<Self> {
        let room = if share > 0.0 { ROOM } else { 1 };
        let capacity = usize::try_from(room * capacity_for::<U64Keys>(&parameters, most_keys))?;
        let config = ClientConfig::default().with_plan(PlanChoice::Fixed(Plan::Groups));
        let client = Client::embedded_with(capacity, config)?;
        let value_bytes = parameters.shape.value_bytes.context("values of one length")? as usize;
        load_records(&client, &Loaded { keys, value_bytes }, parameters, bar)?;
        let reach = parameters.groups.context("a table with groups")?.reach;
        let group_bytes = parameters.geometry().slot_bytes as u64 * u64::from(reach);
        Ok(Self { client, value_bytes, group_bytes, wrong: 0 })
    }

    /// Inserts the keys, and reads one of each call's again, as those who use a table do.
    fn insert(&mut self, keys: &[u64]) -> anyhow::Result<()> {
        let mut reader = self.client.reader();
        let (mut changes, mut replies) = (Changes::<U64Keys>::new(), Vec::new());
        let (mut value, mut found) = (Vec::new(), Vec::new());
        for keys in keys.chunks(INSERTS) {
            changes.clear();
            for key in keys {
                value_of(*key, &mut value, self.value_bytes);
                changes.insert(*key, &value);
            }
            self.client.apply(&changes, &mut replies)?;
            let refused = replies.iter().find(|reply| reply.status != WriteStatus::Done);
            ensure!(
                refused.is_none(),
                "the memory node answered {:?} to an insert that could be made: please report it",
                refused.map(|reply| reply.status)
            );
            let answer = reader.get_into(keys[0], &mut found)?.version;
            value_of(keys[0], &mut value, self.value_bytes);
            self.wrong += u64::from(answer.is_none() || found != value);
        }
        Ok(())
    }

    /// Reads every key, so that the table of each segment has been asked for.
    fn read_all(&mut self, keys: &[u64]) -> anyhow::Result<()> {
        let mut reader = self.client.reader();
        let (mut answers, mut value) = (Answers::new(), Vec::new());
        for keys in keys.chunks(TOGETHER) {
            reader.multi_get_into(keys, &mut answers)?;
            for (at, key) in keys.iter().enumerate() {
                value_of(*key, &mut value, self.value_bytes);
                self.wrong += u64::from(answers.value(at) != Some(&*value));
            }
        }
        Ok(())
    }

    /// Looks up keys, as far from one another as there are, and one that is absent after each,
    /// where there is a gap.
    fn count(&mut self, keys: &[u64], lookups: u64, seed: u64) -> anyhow::Result<Figures> {
        let mut reader = self.client.reader();
        let (mut figures, mut state) = (Figures::default(), seed);
        let (mut value, mut found) = (Vec::new(), Vec::new());
        let step = (keys.len() as u64).div_ceil(lookups.max(1)).max(1) as usize;
        let mut places: Vec<usize> = (0..keys.len()).step_by(step).collect();
        for last in (1..places.len()).rev() {
            places.swap(last, (split_mix(&mut state) % (last as u64 + 1)) as usize);
        }
        for at in places {
            let key = keys[at];
            let answer = reader.get_into(key, &mut found)?;
            figures.present.add(&answer, self.group_bytes);
            value_of(key, &mut value, self.value_bytes);
            self.wrong += u64::from(answer.version.is_none() || found != value);
            let gap = keys.get(at + 1).copied().unwrap_or(u64::MAX).saturating_sub(key).saturating_sub(1);
            if gap > 0 {
                let answer = reader.get_into(key + 1 + split_mix(&mut state) % gap, &mut found)?;
                figures.absent.add(&answer, self.group_bytes);
                self.wrong += u64::from(answer.version.is_some());
            }
        }
        figures.wrong = self.wrong;
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::density::form::FormName;
    use fpcache_datasets::{OpenOptions, Spec};

    fn setting(slot_bytes: u64) -> Setting {
        Setting { form: FormName::Plain, epsilon: 32, fill: 0.85, slot_bytes, seed: 1 }
    }

    #[test]
    fn slots_of_some_lengths_lie_in_groups() {
        for slot_bytes in [0, 8, 16, 20, 28, 72, 264, u64::MAX] {
            assert!(parameters(&setting(slot_bytes)).is_none(), "{slot_bytes}");
        }
        for slot_bytes in [24, 32, 64] {
            let parameters = parameters(&setting(slot_bytes)).expect("short slots");
            parameters.validate::<U64Keys>().expect("good parameters");
            assert_eq!(parameters.geometry().slot_bytes as u64, slot_bytes);
        }
    }

    #[test]
    fn a_memory_node_has_nearly_all_keys_a_read_away_and_answers_rightly() {
        let spec: Spec = "uniform:30K".parse().expect("a data set");
        let dataset = spec.open(&OpenOptions::default()).expect("keys");
        let parameters = parameters(&setting(24)).expect("short slots");
        let keys = dataset.keys().len() as u64;
        for (share, least) in [(0.0, (0.999, 0.999)), (0.1, (0.98, 0.88))] {
            let found = measure(&dataset, parameters, share, 10_000, 1, &Bar::default()).expect("a run");
            assert_eq!((found.wrong, found.keys), (0, keys));
            let inserted = (keys as f64 * share / (1.0 + share)).round() as u64;
            assert_eq!((found.present.count, found.inserted), (10_000, inserted));
            let shares = (found.present.in_one_read(), found.absent.in_one_read());
            assert!(shares.0 >= least.0 && shares.1 >= least.1, "{share} inserted: {shares:?}");
            assert!((200.0..260.0).contains(&found.present.bytes_read()), "{found:?}");
            assert!(
                found.directory_bytes > 42 * found.segments && found.bytes > found.directory_bytes + keys / 7
            );
        }
    }

    #[test]
    fn only_one_read_of_a_groups_slots_counts_as_one() {
        let found = |plan, round_trips, reads, bytes| Found {
            version: Some(1),
            plan,
            cost: fpcache_client::Cost { round_trips, reads, bytes, ..Default::default() },
        };
        let mut shares = Shares::default();
        for (other, is_one) in [
            (found(Plan::Groups, 1, 1, 240), 1),
            (found(Plan::Groups, 1, 2, 400), 0),
            (found(Plan::TwoStage, 2, 2, 100), 0),
            (found(Plan::Range, 1, 1, 2000), 0),
        ] {
            let before = shares.one_read;
            shares.add(&other, 240);
            assert_eq!(shares.one_read - before, is_one, "{other:?}");
        }
        assert_eq!((shares.count, shares.bytes), (4, 2740));
    }
}
