//! Line plots. The plot of a sweep shows throughput over the swept setting, and the hit rate below
//! it if there is a hot cache. There is one line per system, plan, variant and policy; thin bars
//! reach from the slowest pass to the fastest.

mod axes;

use anyhow::anyhow;
pub use axes::Axis;
use axes::{rate_axis, share_axis, x_axis};
use clap::ValueEnum;
use fpcache_datasets::count::human_bytes;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::run::row::Row;
use crate::sweep::label;
use crate::sweep::points::Over;

/// Stands in every plot of ours.
pub const MARK: &str = "<!-- drawn by fpcache-eval sweep -->";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: i32 = 1080;
/// Left and right end of the panels; the legend is to their right.
const PANEL_X: (i32, i32) = (96, 770);
const LEGEND_X: i32 = 794;
/// From a name in the legend to the next.
const LEGEND_STEP: i32 = 24;
/// Top of the first panel, below the title.
const TOP: i32 = 118;
const THROUGHPUT_HEIGHT: i32 = 300;
const HITS_HEIGHT: i32 = 200;
/// From one panel to the next, and below the last one: room for ticks and the axis' name.
const BELOW: i32 = 62;

/// Texts.
pub const INK: RGBColor = RGBColor(34, 34, 34);
/// Axes, and what is beside the point.
pub const FAINT: RGBColor = RGBColor(110, 110, 110);
/// Lines at the ticks.
pub const GRID: RGBColor = RGBColor(226, 226, 226);
/// Colours that also the colour-blind tell apart (Okabe and Ito, 2008), the lightest left out.
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// A line of the plot.
struct Series {
    label: String,
    colour: RGBColor,
    /// Lines beyond the number of colours have hollow marks.
    is_hollow: bool,
    points: Vec<Figures>,
}

impl Series {
    /// A line without points, told apart from the others.
    fn next(others: &[Self], label: String) -> Self {
        let colour = COLOURS[others.len() % COLOURS.len()];
        Self { label, colour, is_hollow: others.len() >= COLOURS.len(), points: Vec::new() }
    }

    fn mark<'a>(&self, area: &Area<'a>, at: (i32, i32)) -> Drawn<'a> {
        let inside = if self.is_hollow { WHITE } else { self.colour };
        area.draw(&Circle::new(at, 4, inside.filled()))?;
        area.draw(&Circle::new(at, 4, self.colour.stroke_width(2)))
    }
}

/// A point of a line.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Where it lies along the x axis.
    pub x: f64,
    /// How high it lies.
    pub rate: f64,
    /// The lower end of its bar.
    pub slowest: f64,
    /// The upper end.
    pub fastest: f64,
    /// Its height in the lower panel, if there is one.
    pub hit_rate: Option<f64>,
}

/// Draws a sweep's rows, which are in ascending order of the swept value.
///
/// # Errors
/// If the drawing library fails.
pub fn draw(rows: &[Row]) -> anyhow::Result<String> {
    let Some((first, over)) = rows.first().and_then(|row| Some((row, over(row)?))) else {
        return Ok(format!("<svg xmlns=\"http://www.w3.org/2000/svg\">{MARK}</svg>\n"));
    };
    let series = series(rows);
    let has_hits = rows.iter().any(|row| row.hit_rate.is_some());
    let hits_height = if has_hits { HITS_HEIGHT + BELOW } else { 0 };
    let height = TOP + THROUGHPUT_HEIGHT + BELOW + hits_height;
    let x_axis = || x_axis(&series, over.is_logarithmic(), |value| over.show(value));
    document(height, |area| {
        titles(area, &of_sweep(first, over))?;
        legend(area, &series)?;
        let throughput = Panel::new(TOP, THROUGHPUT_HEIGHT, x_axis(), rate_axis(&series));
        throughput.draw(area, over.axis(), "lookups per second")?;
        for line in &series {
            throughput.line(area, line, |figures| Some((figures.rate, figures.slowest, figures.fastest)))?;
        }
        if has_hits {
            let top = TOP + THROUGHPUT_HEIGHT + BELOW;
            let hits = Panel::new(top, HITS_HEIGHT, x_axis(), share_axis());
            hits.draw(area, over.axis(), "hit rate")?;
            for line in &series {
                hits.line(area, line, |figures| figures.hit_rate.map(|rate| (rate, rate, rate)))?;
            }
        }
        Ok(())
    })
}

/// Draws lines in one panel under titles; `show` is a value of the x axis, whose steps are factors,
/// for people. The axes have names.
///
/// # Errors
/// If the drawing library fails.
pub fn lines(
    headings: &[String; 4],
    lines: Vec<(String, Vec<Figures>)>,
    names: (&str, &str),
    show: impl Fn(f64) -> String,
) -> anyhow::Result<String> {
    let mut series = Vec::with_capacity(lines.len());
    for (label, points) in lines {
        series.push(Series { points, ..Series::next(&series, label) });
    }
    document(TOP + THROUGHPUT_HEIGHT + BELOW, |area| {
        titles(area, headings)?;
        legend(area, &series)?;
        let panel = Panel::new(TOP, THROUGHPUT_HEIGHT, x_axis(&series, true, &show), rate_axis(&series));
        panel.draw(area, names.0, names.1)?;
        for line in &series {
            panel.line(area, line, |figures| Some((figures.rate, figures.slowest, figures.fastest)))?;
        }
        Ok(())
    })
}

/// Draws lines in one panel, as high as their names need, under titles, over axes that are given.
/// The axes have names.
///
/// # Errors
/// If the drawing library fails.
pub fn over_axes(
    headings: &[String; 4],
    lines: Vec<(String, Vec<Figures>)>,
    axes: (Axis, Axis),
    names: (&str, &str),
) -> anyhow::Result<String> {
    let mut series = Vec::with_capacity(lines.len());
    for (label, points) in lines {
        series.push(Series { points, ..Series::next(&series, label) });
    }
    let height = THROUGHPUT_HEIGHT.max(LEGEND_STEP * series.len() as i32);
    document(TOP + height + BELOW, |area| {
        titles(area, headings)?;
        legend(area, &series)?;
        let panel = Panel::new(TOP, height, axes.0, axes.1);
        panel.draw(area, names.0, names.1)?;
        for line in &series {
            panel.line(area, line, |figures| Some((figures.rate, figures.slowest, figures.fastest)))?;
        }
        Ok(())
    })
}

/// A document of this height with our mark.
fn document(height: i32, draw: impl for<'a> FnOnce(&Area<'a>) -> Drawn<'a>) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let size = (WIDTH as u32, height as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
        drawn.map_err(|error| anyhow!("drawing the plot: {error}"))?;
    }
    // After the tag of the document itself.
    let after_tag = text.find("<svg").and_then(|tag| Some(tag + text[tag..].find('>')? + 1));
    text.insert_str(after_tag.unwrap_or(0), &format!("\n{MARK}"));
    Ok(text)
}

fn over(row: &Row) -> Option<Over> {
    Over::from_str(&row.sweep.as_ref()?.over, false).ok()
}

fn series(rows: &[Row]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let label = label(row, rows);
        let at = series.iter().position(|line| line.label == label).unwrap_or_else(|| {
            series.push(Series::next(&series, label));
            series.len() - 1
        });
        series[at].points.push(Figures {
            x: row.sweep.as_ref().map_or(0.0, |tag| tag.value),
            rate: row.ops_per_s,
            slowest: row.ops_per_s_min,
            fastest: row.ops_per_s_max,
            hit_rate: row.hit_rate,
        });
    }
    series
}

/// Text of a size in pixels, a colour and an anchor.
pub fn style(size: i32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    /// The library takes the height of a line, and a line of text is so much higher than its font.
    const LINE: f64 = 1.24;
    ("sans-serif", f64::from(size) * LINE).into_font().color(&colour).pos(Pos::new(h, v))
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// What was measured, on what data, with which settings, where and by which release.
fn titles<'a>(area: &Area<'a>, [title, asked, settings, place]: &[String; 4]) -> Drawn<'a> {
    let left = |size, colour| style(size, colour, HPos::Left, VPos::Top);
    area.draw_text(title, &left(21, INK), (24, 16))?;
    area.draw_text(asked, &left(14, INK), (24, 46))?;
    area.draw_text(settings, &left(13, FAINT), (24, 66))?;
    area.draw_text(place, &left(13, FAINT), (24, 84))
}

fn of_sweep(row: &Row, over: Over) -> [String; 4] {
    let title = format!("{} ({}): lookups over {}", row.dataset, row.dataset_source, over.name());
    [title, asked(row, over), settings(row, over), place(row)]
}

/// What was looked up, with a letter for the setting that is swept.
pub fn asked(row: &Row, over: Over) -> String {
    let named = |is_swept: bool, value: String, name: &str| if is_swept { name.to_owned() } else { value };
    row.what_was_asked(
        named(over == Over::ValueBytes, row.value_bytes_in_words(), "N"),
        named(over == Over::Theta, row.dist.clone(), "zipf:θ"),
        named(over == Over::Threads, row.threads.to_string(), "N"),
    )
}

/// Settings of the table and of the passes.
fn settings(row: &Row, over: Over) -> String {
    let mut parts = Vec::new();
    if let Some(epsilon) = row.epsilon.filter(|_| over != Over::Epsilon) {
        parts.push(format!("epsilon {epsilon}"));
    }
    if let Some(bits) = row.fingerprint_bits.filter(|_| over != Over::FingerprintBits) {
        parts.push(format!("{bits}-bit fingerprints"));
    }
    if let Some(fill) = row.fill.filter(|_| over != Over::Fill) {
        parts.push(format!("fill {fill}"));
    }
    if let Some(transport) = &row.transport {
        parts.push(format!("transport {transport}"));
    }
    if let Some(fsync) = &row.fsync {
        parts.push(format!("fsync {fsync}"));
    }
    if let Some(budget) = row.cache_bytes_budget.filter(|_| over != Over::Cache) {
        parts.push(format!("cache {}", human_bytes(budget)));
    }
    if let (Over::Cache, Some(models)) = (over, row.model_bytes) {
        parts.push(format!("models {}", human_bytes(models)));
    }
    if row.cold == Some(true) {
        parts.push("every pass from an empty cache".to_owned());
    }
    parts.push(match row.rounds {
        1 => "one pass".to_owned(),
        rounds => format!("median of {rounds} passes"),
    });
    parts.join(", ")
}

/// The machine and the release.
pub fn place(row: &Row) -> String {
    let machine = &row.machine;
    let mut parts = Vec::new();
    parts.extend(machine.cpu.clone());
    parts.extend(machine.cores.map(|cores| format!("{cores} cores")));
    parts.extend(machine.memory_bytes.map(human_bytes));
    let commit = row.commit.as_deref().and_then(|commit| commit.get(..8));
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    parts.push(format!("fpcache {}{commit}", row.version));
    parts.join(", ")
}

fn legend<'a>(area: &Area<'a>, series: &[Series]) -> Drawn<'a> {
    for (at, line) in series.iter().enumerate() {
        let y = TOP + 10 + LEGEND_STEP * at as i32;
        let stroke = line.colour.stroke_width(3);
        area.draw(&PathElement::new([(LEGEND_X, y), (LEGEND_X + 26, y)], stroke))?;
        line.mark(area, (LEGEND_X + 13, y))?;
        area.draw_text(&line.label, &style(14, INK, HPos::Left, VPos::Center), (LEGEND_X + 36, y))?;
    }
    Ok(())
}

/// A pair of axes and what lies between them.
struct Panel {
    top: i32,
    bottom: i32,
    x: Axis,
    y: Axis,
}

impl Panel {
    fn new(top: i32, height: i32, x: Axis, y: Axis) -> Self {
        Self { top, bottom: top + height, x, y }
    }

    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let (left, right) = PANEL_X;
        let along = self.x.share(x) * f64::from(right - left);
        let up = self.y.share(y) * f64::from(self.bottom - self.top);
        (left + along.round() as i32, self.bottom - up.round() as i32)
    }

    /// Grid, ticks and names of the axes.
    fn draw<'a>(&self, area: &Area<'a>, x_name: &str, y_name: &str) -> Drawn<'a> {
        let (left, right) = PANEL_X;
        let mut free_from = i32::MIN;
        for (value, text) in &self.x.ticks {
            let (x, _) = self.at(*value, self.y.low);
            area.draw(&PathElement::new([(x, self.top), (x, self.bottom)], GRID))?;
            // Values may lie closer together than their texts have room.
            let half = 4 * text.chars().count() as i32 + 4;
            if x - half >= free_from {
                area.draw_text(text, &style(13, INK, HPos::Center, VPos::Top), (x, self.bottom + 8))?;
                free_from = x + half;
            }
        }
        for (value, text) in &self.y.ticks {
            let (_, y) = self.at(self.x.low, *value);
            area.draw(&PathElement::new([(left, y), (right, y)], GRID))?;
            area.draw_text(text, &style(13, INK, HPos::Right, VPos::Center), (left - 8, y))?;
        }
        area.draw(&PathElement::new([(left, self.top), (left, self.bottom), (right, self.bottom)], FAINT))?;
        let x_style = style(14, INK, HPos::Center, VPos::Top);
        area.draw_text(x_name, &x_style, ((left + right) / 2, self.bottom + 28))?;
        let upwards = style(14, INK, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        area.draw_text(y_name, &upwards, (24, (self.top + self.bottom) / 2))
    }

    /// One line with its marks; `figure` gives value, least and most of a point.
    fn line<'a>(
        &self,
        area: &Area<'a>,
        line: &Series,
        figure: impl Fn(&Figures) -> Option<(f64, f64, f64)>,
    ) -> Drawn<'a> {
        let figures: Vec<_> =
            line.points.iter().filter_map(|point| Some((point.x, figure(point)?))).collect();
        let path: Vec<(i32, i32)> = figures.iter().map(|(x, (y, ..))| self.at(*x, *y)).collect();
        area.draw(&PathElement::new(path.clone(), line.colour.stroke_width(2)))?;
        for ((x, (_, least, most)), mark) in figures.iter().zip(path) {
            let ends = [self.at(*x, *least), self.at(*x, *most)];
            area.draw(&PathElement::new(ends, line.colour.mix(0.5).stroke_width(2)))?;
            line.mark(area, mark)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for over in [Over::Cache, Over::Theta] {
            for count in [1, 5] {
                let show = |value| over.show(value);
                let axis = x_axis(&line(&vec![1.0; count]), over.is_logarithmic(), show);
                let shares: Vec<f64> = axis.ticks.iter().map(|(value, _)| axis.share(*value)).collect();
                assert!(shares.is_sorted() && shares[0] > 0.0 && shares[count - 1] < 1.0, "{shares:?}");
            }
        }
    }

    #[test]
    fn nothing_is_drawn_as_an_empty_document() {
        assert!(draw(&[]).unwrap().contains(MARK));
    }
}
