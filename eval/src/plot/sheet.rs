//! The sheet that panels lie on: its titles and its legend.

use anyhow::anyhow;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::series::Series;
use super::style::{Area, Drawn, FAINT, INK, style};

/// Stands in every plot of ours.
pub const MARK: &str = "<!-- drawn by fpcache-eval sweep -->";

const WIDTH: i32 = 1080;
const LEGEND_X: i32 = 794;
/// From a name in the legend to the next.
pub const LEGEND_STEP: i32 = 24;
/// Top of the first panel, below the titles.
pub const TOP: i32 = 118;
/// From one panel to the next, and below the last one: room for ticks and the axis' name.
pub const BELOW: i32 = 62;

/// A document of this height with our mark.
///
/// # Errors
/// If the drawing library fails.
pub fn document(height: i32, draw: impl for<'a> FnOnce(&Area<'a>) -> Drawn<'a>) -> anyhow::Result<String> {
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

/// What was measured, on what data, with which settings, where and by which release.
///
/// # Errors
/// If the drawing library fails.
pub fn titles<'a>(area: &Area<'a>, [title, asked, settings, place]: &[String; 4]) -> Drawn<'a> {
    let left = |size, colour| style(size, colour, HPos::Left, VPos::Top);
    area.draw_text(title, &left(21, INK), (24, 16))?;
    area.draw_text(asked, &left(14, INK), (24, 46))?;
    area.draw_text(settings, &left(13, FAINT), (24, 66))?;
    area.draw_text(place, &left(13, FAINT), (24, 84))
}

/// The names of the lines, beside the panels.
///
/// # Errors
/// If the drawing library fails.
pub fn legend<'a>(area: &Area<'a>, series: &[Series]) -> Drawn<'a> {
    for (at, line) in series.iter().enumerate() {
        let y = TOP + 10 + LEGEND_STEP * at as i32;
        let stroke = line.colour.stroke_width(3);
        area.draw(&PathElement::new([(LEGEND_X, y), (LEGEND_X + 26, y)], stroke))?;
        line.mark(area, (LEGEND_X + 13, y))?;
        area.draw_text(&line.label, &style(14, INK, HPos::Left, VPos::Center), (LEGEND_X + 36, y))?;
    }
    Ok(())
}
