//! Axes: what values they reach over, and where these are marked.

use fpcache_datasets::count::human;

use super::series::Series;

/// Values along an axis and where they are marked.
pub struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) is_logarithmic: bool,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From the first of these ticks to the last, by factors; the first may be the greatest.
    pub fn of_ticks(ticks: Vec<(f64, String)>) -> Self {
        let end = |tick: Option<&(f64, String)>| tick.map_or(1.0, |(value, _)| *value);
        Self { low: end(ticks.first()), high: end(ticks.last()), is_logarithmic: true, ticks }
    }

    /// What the ticks say.
    #[cfg(test)]
    pub fn ticks(&self) -> Vec<String> {
        self.ticks.iter().map(|(_, text)| text.clone()).collect()
    }

    /// How far along the axis a value lies, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.is_logarithmic { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (low, high) = (scale(self.low), scale(self.high));
        ((scale(value) - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// Ticks at the swept values.
pub fn x_axis(series: &[Series], by_factors: bool, show: impl Fn(f64) -> String) -> Axis {
    let mut values: Vec<f64> = series.iter().flat_map(|line| line.points.iter().map(|f| f.x)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let (low, high) = (values.first().copied().unwrap_or(1.0), values.last().copied().unwrap_or(1.0));
    let is_logarithmic = by_factors && low > 0.0;
    let (low, high) = match is_logarithmic {
        true => {
            let margin = (high / low).powf(0.04).max(1.06);
            (low / margin, high * margin)
        }
        false => {
            let margin = (0.04 * (high - low)).max(0.02 * high.abs()).max(1e-3);
            (low - margin, high + margin)
        }
    };
    let ticks = values.into_iter().map(|value| (value, show(value))).collect();
    Axis { low, high, is_logarithmic, ticks }
}

/// From 0, or with factors as steps where the fastest line would flatten the slowest.
pub fn rate_axis(series: &[Series]) -> Axis {
    const FLATTENED: f64 = 8.0;
    let figures = || series.iter().flat_map(|line| &line.points);
    let most = figures().map(|f| f.fastest).fold(1.0, f64::max);
    let least = figures().map(|f| f.slowest).fold(most, f64::min).max(1.0);
    if most / least > FLATTENED {
        let decade = 10f64.powf(least.log10().floor());
        let steps = (0..).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * decade * 10f64.powi(power)));
        let mut ticks: Vec<f64> = steps.take_while(|&tick| tick < 5.0 * most).collect();
        while ticks.len() > 2 && ticks[1] <= least {
            ticks.remove(0);
        }
        while ticks.len() > 2 && ticks[ticks.len() - 2] >= most {
            ticks.pop();
        }
        let (low, high) = (ticks.first().copied().unwrap_or(1.0), ticks.last().copied().unwrap_or(10.0));
        return Axis { low, high, is_logarithmic: true, ticks: ticks.into_iter().map(rate_tick).collect() };
    }
    const INTERVALS: f64 = 6.0;
    let rough = most / INTERVALS;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|s| s * decade).into_iter().find(|&s| s >= rough);
    let step = step.unwrap_or(10.0 * decade);
    let count = (most / step).ceil().max(1.0) as u32;
    let ticks = (0..=count).map(|i| rate_tick(f64::from(i) * step)).collect();
    Axis { low: 0.0, high: f64::from(count) * step, is_logarithmic: false, ticks }
}

fn rate_tick(rate: f64) -> (f64, String) {
    let text = human(rate.round() as u64);
    let short = match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    };
    (rate, short)
}

/// Shares from 0 to 1.
pub fn share_axis() -> Axis {
    let ticks = (0..=4).map(|i| (0.25 * f64::from(i), format!("{} %", 25 * i))).collect();
    Axis { low: 0.0, high: 1.0, is_logarithmic: false, ticks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::series::Figures;
    use crate::plot::style::COLOURS;

    fn line(rates: &[f64]) -> Vec<Series> {
        let figures = |(i, &rate): (usize, &f64)| Figures {
            x: f64::from(1 << i),
            rate,
            slowest: rate,
            fastest: rate,
            hit_rate: None,
        };
        let points = rates.iter().enumerate().map(figures).collect();
        vec![Series { label: "a".to_owned(), colour: COLOURS[0], is_hollow: false, points }]
    }

    #[test]
    fn rates_of_one_size_begin_at_zero_and_others_are_factors_apart() {
        let linear = rate_axis(&line(&[1.1e6, 2.3e6]));
        assert!(!linear.is_logarithmic && linear.low == 0.0 && linear.high >= 2.3e6);
        assert!(linear.ticks.len() <= 8, "{:?}", linear.ticks);
        let factors = rate_axis(&line(&[3.1e5, 1.3e7]));
        assert!(factors.is_logarithmic && factors.low <= 3.1e5 && factors.high >= 1.3e7);
        assert_eq!(factors.ticks[0].1, "200 K");
        let none = rate_axis(&line(&[0.0]));
        assert!(none.high > none.low);
    }

    #[test]
    fn values_lie_in_order_along_either_kind_of_axis() {
        for by_factors in [true, false] {
            for count in [1, 5] {
                let axis = x_axis(&line(&vec![1.0; count]), by_factors, |value| value.to_string());
                let shares: Vec<f64> = axis.ticks.iter().map(|(value, _)| axis.share(*value)).collect();
                assert!(shares.is_sorted() && shares[0] > 0.0 && shares[count - 1] < 1.0, "{shares:?}");
            }
        }
    }
}
