//! The choice of a table's parameters, from a sample of its keys, the records' shape, the fabric's
//! costs, and the bytes that a compute node has for it.
//!
//! Every form of groups that the slots can be in, and none, is compared with every ε that is
//! sensible: the sample is cut, grouped, and grown by some inserts, as a memory node does
//! ([`KeySample`]); what comes out is counted ([`Counts`]), and a lookup's round trips and bytes
//! follow, with the budget divided between tables and entries of the hot cache as compute nodes do
//! ([`Split`]). Times are these at the prices of the fabric, by the sums that read plans are chosen
//! by. Of all whose time is within a twentieth of the least, the one with the fewest bytes wins,
//! and of several with as many the fastest ([`cheapest`]). A forced parameter is the only one
//! compared.

mod cost;
mod counts;
mod fingerprint_worth;
mod sample;
mod split;

use std::fmt::{self, Display};

pub use cost::{Candidate, Lookups, Way};
pub use counts::{Counts, Marks};
pub use fingerprint_worth::FingerprintWorth;
pub use sample::KeySample;
pub use split::Split;

use crate::fingerprint::WidthChoice;
use crate::key_space::{BuildKeys, OrderError};
use crate::layout::{
    ChosenFor, GroupChoice, GroupForm, Grouping, ParameterError, RecordShape, TableParameters,
};

/// Times as far apart as this, as a share, are taken for equal.
const CLOSE: f64 = 1.05;

/// Parameters that are decided beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forced {
    /// The form of groups, or that there are none.
    pub groups: Option<Option<GroupChoice>>,
    /// Error bound of the models.
    pub epsilon: Option<u32>,
    /// Share of slots that hold a record after a load.
    pub fill: Option<f64>,
    /// Width of fingerprints; unless told the least that suits ε and slots.
    pub width: Option<WidthChoice>,
}

/// Parameters, and what lookups cost with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Considered {
    /// The parameters.
    pub parameters: TableParameters,
    /// The counts.
    pub candidate: Candidate,
    /// How the budget is divided, and what a lookup takes then.
    pub split: Split,
}

impl Considered {
    /// The [name](GroupForm::name) of the form of groups, or `none`.
    #[must_use]
    pub const fn form(&self) -> &'static str {
        match self.parameters.groups {
            None => "none",
            Some(groups) => groups.name().name(),
        }
    }

    /// Bytes of the compute node for each key, of all that the budget goes to.
    #[must_use]
    pub fn bytes_per_key(&self) -> f64 {
        self.split.bytes / self.candidate.keys.max(1.0)
    }

    /// As [`cheapest`] takes it, if it is one of those to choose from.
    fn option(&self, is_one: bool) -> (bool, f64, f64) {
        (is_one && self.split.fits, self.split.ns, self.bytes_per_key())
    }

    /// The bytes that a compute node keeps for each key, and the share of keys with an entry in the
    /// hot cache.
    fn kept(&self) -> String {
        let Self { candidate, split, .. } = self;
        let keys = candidate.keys.max(1.0);
        let (models, entries) = (candidate.model_bytes / keys, split.hot_bytes / keys);
        let tables = (self.bytes_per_key() - models - entries).max(0.0);
        let mut text = format!("a compute node keeps {:.3} B/key: models {models:.3}", self.bytes_per_key());
        let parts = [("tables", tables), ("hot cache", entries)];
        for (name, bytes) in parts.into_iter().filter(|(_, bytes)| *bytes > 0.0) {
            text += &format!(", {name} {bytes:.3}");
        }
        // Not all of them get one where hashes put too many into a bucket.
        let all = 0.99 * candidate.keys * split.unsettled(candidate);
        let has_all = split.entries > 0.0 && split.entries >= all;
        if has_all && split.tables > 0.0 {
            text += "\nthe hot cache has room for an entry of every key that tables do not settle";
        } else if has_all {
            text += "\nthe hot cache has room for an entry of every key";
        } else if split.entries > 0.0 {
            text += &format!(
                "\nthe hot cache has room for entries of {:.1} % of the keys",
                100.0 * split.entries / keys
            );
        }
        text
    }
}

/// The choice, and the alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// All that was compared, by form, fill and ε.
    pub considered: Vec<Considered>,
    chosen: usize,
    /// The worth of the chosen table's fingerprints; `None` if it stores none.
    pub fingerprints: Option<FingerprintWorth>,
}

/// Why nothing was chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The slots are too long for the form that was asked for.
    #[error(
        "groups of several slots are for slots of up to 64 bytes, and these have {slot_bytes}: leave the form of groups to be chosen, or choose pilots or none"
    )]
    TooLong {
        /// Their bytes.
        slot_bytes: usize,
    },
    /// No models have room.
    #[error(
        "the budget of {budget} bytes is too small to keep all models, for which it takes {least} with epsilon {epsilon}: give it more, or force no epsilon"
    )]
    Budget {
        /// The budget.
        budget: u64,
        /// The least one with which the smallest models are all kept.
        least: u64,
        /// And with which ε.
        epsilon: u32,
    },
    /// Something of the lookups, or of the growth, is no number that can be reckoned with.
    #[error("{what} is {value}: it must be a number {range}")]
    Lookups {
        /// Its name.
        what: &'static str,
        /// Its value.
        value: f64,
        /// Which numbers it can be.
        range: &'static str,
    },
    /// Something that was forced is no parameter.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// The sample is not in order.
    #[error(transparent)]
    Order(#[from] OrderError),
}

impl Tuned {
    /// The choice.
    ///
    /// # Panics
    /// Never: there is one.
    #[must_use]
    pub fn chosen(&self) -> &Considered {
        &self.considered[self.chosen]
    }

    /// The conditions that the parameters are chosen for, as their table is to remember them.
    fn chosen_for(&self, lookups: &Lookups, growth: f64) -> ChosenFor {
        // All are far below 2^32, or told as that.
        let whole = |number: f64, unit: f64| (number * unit).round() as u32;
        let split = &self.chosen().split;
        let others = self.others().min_by(|a, b| a.split.ns.total_cmp(&b.split.ns));
        ChosenFor {
            round_trip_ns: whole(lookups.costs.round_trip, 1.0),
            byte_ps: whole(lookups.costs.byte, 1e3),
            budget: lookups.budget,
            growth: whole(growth, 1e6),
            round_trips: whole(split.way.round_trips, 1e6),
            bytes: whole(split.way.bytes, 1.0),
            other: others.map(|other| {
                (other.parameters.groups.map(Grouping::name), whole(other.split.ns / split.ns, 1e3))
            }),
        }
    }

    /// The best choice within each form that was not chosen.
    pub fn others(&self) -> impl Iterator<Item = &Considered> {
        let of = |form: &'static str| {
            let options = self.considered.iter().map(|one| one.option(one.form() == form));
            cheapest(options).and_then(|at| self.considered.get(at))
        };
        let chosen = self.chosen().form();
        let forms = ["none"].into_iter().chain(GroupForm::ALL.map(GroupForm::name));
        forms.filter(move |form| *form != chosen).filter_map(of)
    }
}

/// The choice, what a compute node keeps for it, what a lookup takes, and what each [other
/// form](Tuned::others) would take and keep: a line each.
impl Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = self.chosen();
        let (p, split) = (&chosen.parameters, &chosen.split);
        let fingerprints = p.fingerprints_in_words();
        let groups = p.groups.map_or("none".to_owned(), |groups| GroupChoice::from(groups).to_string());
        write!(f, "groups {groups}, epsilon {}, fill {}, {fingerprints}", p.epsilon, p.fill)?;
        write!(f, "\n{}", chosen.kept())?;
        write!(
            f,
            "\na lookup takes {:.3} round trips and reads {:.0} B",
            split.way.round_trips, split.way.bytes
        )?;
        for other in self.others() {
            let (time, bytes) =
                (other.split.ns / split.ns, other.bytes_per_key() / chosen.bytes_per_key().max(1e-9));
            let (form, epsilon) = (other.form(), other.parameters.epsilon);
            write!(
                f,
                "\ngroups {form}, epsilon {epsilon}: {time:.2} times the time, {bytes:.2} times the bytes kept"
            )?;
        }
        if let Some(FingerprintWorth { share, times }) =
            self.fingerprints.filter(FingerprintWorth::is_nothing)
        {
            let less = 100.0 * share;
            write!(
                f,
                "\n--fingerprint-bits none: {times:.3} times the time, {less:.1} % less at the memory node"
            )?;
        }
        Ok(())
    }
}

/// Chooses parameters for records of this shape with keys such as these, which are looked up in
/// this way after the table has grown by `growth` for each key that is loaded, a fifth at most.
/// Some 0.1 s for each ε and form with a full sample.
///
/// # Errors
/// [`TuneError`].
pub fn tune<K: BuildKeys>(
    sample: &KeySample<K>,
    shape: RecordShape,
    lookups: &Lookups,
    growth: f64,
    forced: &Forced,
) -> Result<Tuned, TuneError> {
    /// After more inserts segments are rebuilt, and records lie in their groups again.
    const MOST_GROWTH: f64 = 0.2;
    check(lookups, growth)?;
    let encoders = sample.encoders();
    let mut considered = Vec::new();
    for parameters in candidates(shape, forced)? {
        parameters.validate::<K>()?;
        let counts = sample.count(&parameters, &encoders, growth.clamp(0.0, MOST_GROWTH))?;
        let candidate = Candidate::of(&counts, &parameters);
        considered.push(Considered { parameters, candidate, split: Split::of(&candidate, lookups) });
    }
    if let Some(chosen) = cheapest(considered.iter().map(|one| one.option(true))) {
        let fingerprints = FingerprintWorth::of(&considered[chosen].candidate, lookups);
        let mut tuned = Tuned { considered, chosen, fingerprints };
        tuned.considered[chosen].parameters.chosen_for = Some(tuned.chosen_for(lookups, growth));
        return Ok(tuned);
    }
    let least = considered.iter().min_by(|a, b| a.candidate.model_bytes.total_cmp(&b.candidate.model_bytes));
    Err(TuneError::Budget {
        budget: lookups.budget.unwrap_or_default(),
        least: least.map_or(0, |one| one.candidate.least_budget()),
        epsilon: least.map_or(0, |one| one.parameters.epsilon),
    })
}

/// Refuses what would make every time no number, and so every choice one of no option.
fn check(lookups: &Lookups, growth: f64) -> Result<(), TuneError> {
    const NO_LESS: &str = "of 0 or more";
    let Lookups { costs, theta, negative, .. } = lookups;
    let all = [
        ("the cost of a round trip", costs.round_trip, f64::MAX, NO_LESS),
        ("the cost of a byte", costs.byte, f64::MAX, NO_LESS),
        ("the cost of a request", costs.request, f64::MAX, NO_LESS),
        ("the cost of asking the hot cache", costs.probe, f64::MAX, NO_LESS),
        ("the cost of asking a table", costs.table, f64::MAX, NO_LESS),
        ("theta", *theta, f64::MAX, NO_LESS),
        ("the share of absent keys", *negative, 1.0, "from 0 to 1"),
        ("growth", growth, f64::MAX, NO_LESS),
    ];
    match all.into_iter().find(|(_, value, most, _)| !(0.0..=*most).contains(value)) {
        Some((what, value, _, range)) => Err(TuneError::Lookups { what, value, range }),
        None => Ok(()),
    }
}

/// Of the options that fit and take at most a twentieth more than the least time, the one with the
/// fewest bytes, and of several with as many the fastest: of whether it fits, nanoseconds, bytes.
#[must_use]
pub fn cheapest(options: impl Iterator<Item = (bool, f64, f64)> + Clone) -> Option<usize> {
    let fitting = options.enumerate().filter(|(_, (fits, ..))| *fits);
    let least = fitting.clone().map(|(_, (_, ns, _))| ns).fold(f64::INFINITY, f64::min);
    let close = fitting.filter(|(_, (_, ns, _))| *ns <= least * CLOSE);
    close.min_by(|(_, a), (_, b)| a.2.total_cmp(&b.2).then(a.1.total_cmp(&b.1))).map(|(at, _)| at)
}

/// All parameters that are compared.
fn candidates(shape: RecordShape, forced: &Forced) -> Result<Vec<TableParameters>, TuneError> {
    const EPSILONS: [u32; 6] = [8, 16, 32, 64, 128, 256];
    const FILLS_OF_GROUPS: [f64; 2] = [TableParameters::FILL_OF_GROUPS, 0.85];
    let default = TableParameters { shape, ..TableParameters::default() };
    let slot_bytes = default.geometry().slot_bytes;
    let forms = match forced.groups {
        Some(form) => vec![form],
        None => [None].into_iter().chain(GroupForm::ALL.map(GroupChoice::Fixed).map(Some)).collect(),
    };
    let epsilons = forced.epsilon.map_or(EPSILONS.to_vec(), |epsilon| vec![epsilon]);
    let mut all = Vec::new();
    for form in forms {
        let groups = form.and_then(|form: GroupChoice| form.grouping(slot_bytes));
        match (form, groups, forced.groups) {
            (Some(_), None, Some(_)) => return Err(TuneError::TooLong { slot_bytes }),
            (Some(_), None, None) => continue,
            _ => {}
        }
        let fills = match (forced.fill, groups) {
            (Some(fill), _) => vec![fill],
            (None, Some(_)) => FILLS_OF_GROUPS.to_vec(),
            (None, None) => vec![default.fill],
        };
        for (fill, epsilon) in fills.iter().flat_map(|fill| epsilons.iter().map(move |e| (*fill, *e))) {
            let parameters = TableParameters { groups, epsilon, fill, ..default };
            all.push(parameters.with_width(forced.width.unwrap_or(WidthChoice::Auto)));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
