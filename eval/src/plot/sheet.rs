//! Sheets: panels of lines as documents of their own, under titles and beside a legend. Thin bars
//! reach from the least figure of a point to the greatest.

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::draw::{Frame, Look, lines};
use super::figure::{Axis, Series};
use super::style::{Area, Drawn, FAINT, INK, style};

/// Stands in every plot of ours.
pub const MARK: &str = "<!-- drawn by fpcache-eval sweep -->";

const WIDTH: i32 = 1080;
/// Left and right end of the panels; the legend is to their right.
const PANEL_X: (i32, i32) = (96, 770);
/// Least height of the first panel, and the height of those below it.
const PANEL_HEIGHT: i32 = 300;
const LOWER_HEIGHT: i32 = 200;
const LEGEND_X: i32 = 794;
/// From a name in the legend to the next.
const LEGEND_STEP: i32 = 24;
/// Top of the first panel, below the titles.
const TOP: i32 = 118;
/// From one panel to the next, and below the last one: room for ticks and the axis' name.
const BELOW: i32 = 62;

/// A panel: what lies along its axes, and its lines. Those of one number look the same in all
/// panels.
pub type Panel<'a> = (Axis, Axis, &'a [Series]);

/// Draws panels below each other, the first of them high enough for a legend of its lines, under
/// what was measured, on what data, with which settings, where and by which release.
///
/// # Errors
/// If the drawing library fails.
pub fn sheet(headings: &[String; 4], panels: &[Panel<'_>]) -> anyhow::Result<String> {
    let named = panels.first().map_or(&[][..], |(.., series)| *series);
    let first = PANEL_HEIGHT.max(LEGEND_STEP * named.len() as i32);
    let below = (LOWER_HEIGHT + BELOW) * panels.len().saturating_sub(1) as i32;
    let mut text = String::new();
    {
        let size = (WIDTH as u32, (TOP + first + BELOW + below) as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let draw = || {
            area.fill(&WHITE)?;
            titles(&area, headings)?;
            legend(&area, named)?;
            let (mut top, mut height) = (TOP, first);
            for (x, y, series) in panels {
                let frame = Frame { left: PANEL_X.0, right: PANEL_X.1, top, bottom: top + height };
                lines(&area, frame, (x, y), series)?;
                (top, height) = (top + height + BELOW, LOWER_HEIGHT);
            }
            area.present()
        };
        draw().map_err(|error| anyhow!("drawing the plot: {error}"))?;
    }
    // After the tag of the document itself.
    let after_tag = text.find("<svg").and_then(|tag| Some(tag + text[tag..].find('>')? + 1));
    text.insert_str(after_tag.unwrap_or(0), &format!("\n{MARK}"));
    Ok(text)
}

fn titles<'a>(area: &Area<'a>, [title, asked, settings, place]: &[String; 4]) -> Drawn<'a> {
    let left = |size, colour| style(size, colour, HPos::Left, VPos::Top);
    area.draw_text(title, &left(21, INK), (24, 16))?;
    area.draw_text(asked, &left(14, INK), (24, 46))?;
    area.draw_text(settings, &left(13, FAINT), (24, 66))?;
    area.draw_text(place, &left(13, FAINT), (24, 84))
}

fn legend<'a>(area: &Area<'a>, series: &[Series]) -> Drawn<'a> {
    for (number, line) in series.iter().enumerate() {
        let y = TOP + 10 + LEGEND_STEP * number as i32;
        let look = Look::of(number);
        look.line(area, vec![(LEGEND_X, y), (LEGEND_X + 26, y)])?;
        look.mark(area, (LEGEND_X + 13, y))?;
        area.draw_text(&line.label, &style(14, INK, HPos::Left, VPos::Center), (LEGEND_X + 36, y))?;
    }
    Ok(())
}
