//! Line plots, as SVG: panels of lines with marks, under titles and beside a legend. Thin bars reach
//! from the least figure of a point to the greatest.

pub mod axes;
pub mod panel;
pub mod series;
pub mod sheet;
pub mod style;

use axes::{Axis, rate_axis, x_axis};
use panel::{PANEL_HEIGHT, Panel};
use series::{Figures, Series};
use sheet::{BELOW, LEGEND_STEP, TOP, document, legend, titles};

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
    let series = series(lines);
    let axes = (x_axis(&series, true, &show), rate_axis(&series));
    one_panel(headings, &series, PANEL_HEIGHT, axes, names)
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
    let series = series(lines);
    let height = PANEL_HEIGHT.max(LEGEND_STEP * series.len() as i32);
    one_panel(headings, &series, height, axes, names)
}

/// Lines with these names and points, told apart.
fn series(lines: Vec<(String, Vec<Figures>)>) -> Vec<Series> {
    let mut series = Vec::with_capacity(lines.len());
    for (label, points) in lines {
        series.push(Series { points, ..Series::next(&series, label) });
    }
    series
}

fn one_panel(
    headings: &[String; 4],
    series: &[Series],
    height: i32,
    (x, y): (Axis, Axis),
    (x_name, y_name): (&str, &str),
) -> anyhow::Result<String> {
    document(TOP + height + BELOW, |area| {
        titles(area, headings)?;
        legend(area, series)?;
        let panel = Panel::new(TOP, height, x, y);
        panel.draw(area, x_name, y_name)?;
        for line in series {
            panel.line(area, line, |figures| Some((figures.rate, figures.slowest, figures.fastest)))?;
        }
        Ok(())
    })
}
