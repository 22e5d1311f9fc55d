//! Axes of figures.

use super::figure::{Axis, Steps, Unit};

/// Where the ticks of an axis lie and between which values it reaches.
pub struct Scale {
    low: f64,
    high: f64,
    by_factors: bool,
    /// Values and their texts.
    pub ticks: Vec<(f64, String)>,
}

/// Ticks there are room for.
const TICKS: usize = 6;
/// Above a few of them bytes have units that are powers of two.
const KIBI: f64 = 1024.0;
/// Values that lie further apart than this are drawn by factors: the least would lie on the axis.
const FLATTENED: f64 = 12.0;

impl Scale {
    /// Of an axis along which these values lie.
    pub fn new(axis: &Axis, values: &[f64]) -> Self {
        let (least, most) = if axis.steps == Steps::All { (0.0, 1.0) } else { range(values) };
        let wants_factors = match axis.steps {
            Steps::Factors => true,
            Steps::FromZero => most / least > FLATTENED,
            Steps::Even | Steps::All => false,
        };
        let (low, high, by_factors, at) = match (wants_factors && least > 0.0, axis.at_values) {
            (true, true) => {
                let margin = (most / least).powf(0.04).max(1.06);
                (least / margin, most * margin, true, distinct(values))
            }
            (true, false) => {
                let ticks = match axis.unit == Unit::Bytes && most > 4.0 * KIBI {
                    true => by_factors_of_two(least, most),
                    false => by_factors_of_ten(least, most),
                };
                (ends(&ticks, least).0, ends(&ticks, most).1, true, ticks)
            }
            (false, true) => {
                let margin = (0.04 * (most - least)).max(0.02 * most.abs()).max(1e-9);
                (least - margin, most + margin, false, distinct(values))
            }
            (false, false) => {
                let from = if axis.steps == Steps::FromZero { least.min(0.0) } else { least };
                let ticks = evenly(from, most, axis.unit);
                let (low, high) = ends(&ticks, from);
                (low.min(from), high.max(most), false, ticks)
            }
        };
        let ticks = at.into_iter().map(|value| (value, axis.unit.show(value))).collect();
        Self { low, high, by_factors, ticks }
    }

    /// How far along the axis a value lies, from 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        let place = |v: f64| if self.by_factors { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (low, high) = (place(self.low), place(self.high));
        let share = (place(value) - low) / (high - low);
        // Of a range so large that it is no number, or of no width.
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 }
    }

    /// Whether bars may begin at the axis' lower end.
    pub fn begins_at_zero(&self) -> bool {
        !self.by_factors && self.low == 0.0
    }
}

/// The least and the most of some values, 0 and 1 if there are none.
fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
    let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
    (least, most)
}

fn distinct(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn ends(ticks: &[f64], otherwise: f64) -> (f64, f64) {
    (ticks.first().copied().unwrap_or(otherwise), ticks.last().copied().unwrap_or(otherwise))
}

/// Round numbers in steps of one size around these.
fn evenly(least: f64, most: f64, unit: Unit) -> Vec<f64> {
    let width = most - least;
    if !width.is_finite() || width <= 0.0 {
        // All values are the same: the axis begins at 0 with them in its middle.
        let most = if most > 0.0 && most < f64::MAX / 4.0 { most } else { 1.0 };
        return vec![least.min(0.0), most, 2.0 * most];
    }
    let rough = width / TICKS as f64;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * decade).into_iter().find(|&step| step >= rough);
    let step = match unit == Unit::Bytes && rough > KIBI {
        true => rough.log2().ceil().exp2(),
        false => step.unwrap_or(10.0 * decade).max(f64::MIN_POSITIVE),
    };
    let first = (least / step).floor();
    let count = ((most / step).ceil() - first).clamp(1.0, 2.0 * TICKS as f64) as usize;
    (0..=count).map(|at| (first + at as f64) * step).collect()
}

/// Powers of two around these, as many to a step as keep the ticks few.
fn by_factors_of_two(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.log2().floor() as i32, most.log2().ceil() as i32);
    let apart = ((last - first) as usize).div_ceil(TICKS).max(1) as i32;
    let count = (last - first).max(1).unsigned_abs().div_ceil(apart.unsigned_abs()) as i32;
    (0..=count).map(|at| f64::from(first + at * apart).exp2()).collect()
}

/// Powers of ten around these, with steps between them where there is room.
fn by_factors_of_ten(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let decades = (last - first).max(1);
    let steps: &[f64] = match decades {
        1 => &[1.0, 2.0, 3.0, 5.0, 7.0],
        2 => &[1.0, 2.0, 5.0],
        3 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let apart = (decades / TICKS as i32).max(1) as usize;
    let all: Vec<f64> = (first..=first + decades)
        .step_by(apart)
        .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
        .collect();
    // The nearest tick on either side of the values, and those between.
    let low = all.iter().rposition(|&tick| tick <= least).unwrap_or(0);
    let high = all.iter().position(|&tick| tick >= most && tick > all[low]).unwrap_or(all.len() - 1);
    let mut ticks = all[low..=high].to_vec();
    let covers = ticks.last().is_some_and(|&tick| tick >= most);
    ticks.extend((!covers).then_some(most));
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scale(steps: Steps, at_values: bool, values: &[f64]) -> Scale {
        of_unit(Unit::Count, steps, at_values, values)
    }

    fn of_unit(unit: Unit, steps: Steps, at_values: bool, values: &[f64]) -> Scale {
        let axis = Axis::new("a", unit).by(steps);
        Scale::new(&if at_values { axis.ticks_at_values() } else { axis }, values)
    }

    #[test]
    fn bars_begin_at_zero_unless_that_would_hide_the_least() {
        assert!(scale(Steps::FromZero, false, &[3.0, 17.0]).begins_at_zero());
        let far = scale(Steps::FromZero, false, &[3.0, 1_700.0]);
        assert!(!far.begins_at_zero() && far.share(3.0) < 0.2 && far.share(1_700.0) > 0.8);
    }

    #[test]
    fn a_single_value_has_room_on_either_side() {
        for steps in [Steps::FromZero, Steps::Even, Steps::Factors] {
            for value in [1.0, 0.0, 7e9, 0.0123] {
                let scale = scale(steps, false, &[value]);
                assert!(scale.ticks.len() >= 2, "{value}");
                assert!(scale.high > scale.low, "{value}: {} {}", scale.low, scale.high);
            }
        }
    }

    #[test]
    fn ticks_of_bytes_are_round_in_their_units() {
        for steps in [Steps::FromZero, Steps::Factors] {
            let scale = of_unit(Unit::Bytes, steps, false, &[3e5, 2e6, 3.3e6]);
            let texts: Vec<&str> = scale.ticks.iter().map(|(_, text)| text.as_str()).collect();
            assert!(texts.contains(&"1 MiB") && texts.contains(&"2 MiB"), "{texts:?}");
        }
    }

    proptest! {
        #[test]
        fn values_lie_in_order_between_the_ends(
            mut values in proptest::collection::vec(prop_oneof![0.0..1e12, -1e3..1e3, any::<f64>()], 1..9),
            at_values: bool,
            which in 0..3usize,
            bytes: bool,
        ) {
            values.retain(|value: &f64| value.is_finite());
            let steps = [Steps::FromZero, Steps::Even, Steps::Factors][which];
            let unit = if bytes { Unit::Bytes } else { Unit::Count };
            let scale = of_unit(unit, steps, at_values, &values);
            prop_assert!(scale.ticks.len() <= 16);
            values.sort_by(f64::total_cmp);
            let shares: Vec<f64> = values.iter().map(|&value| scale.share(value)).collect();
            prop_assert!(shares.is_sorted() && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
        }
    }
}
