//! Figures as SVG elements of a page, and what sheets have in common with them. The colours are for
//! a light background; the page's style sheet replaces them, by attributes, for a dark one. Lines
//! also differ by mark and dashes.

use anyhow::anyhow;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::figure::{Axis, Body, Reading, Series};
use super::scale::Scale;
use super::style::{Area, COLOURS, Drawn, FAINT, GRID, INK, style};

/// Narrow enough that texts can be read where a page is 400 pixels wide.
const WIDTH: i32 = 440;
const PANEL_HEIGHT: i32 = 270;
const TOP: i32 = 14;
/// Right of a panel, where a text may end.
const BESIDE: i32 = 18;
const RIGHT: i32 = WIDTH - BESIDE;
/// Below a panel: ticks and the axis' name.
const BELOW: i32 = 50;
const TEXT: i32 = 14;
/// Width of a character, about.
const CHARACTER: f64 = 0.56 * TEXT as f64;
/// Height of a thing's name with what is around it, and of each of its values.
const NAME: i32 = 28;
const VALUE: i32 = 12;
/// Left end of bars.
const LEFT: i32 = 12;

/// Lengths of dashes and of what lies between them; none for a whole line.
const DASHES: [Option<(i32, i32)>; 5] = [None, Some((9, 5)), Some((3, 4)), Some((16, 4)), Some((5, 9))];
const MARKS: [Mark; 4] = [Mark::Circle, Mark::Triangle, Mark::Square, Mark::Diamond];

#[derive(Clone, Copy)]
enum Mark {
    Circle,
    Triangle,
    Square,
    Diamond,
}

/// How the series of a number is drawn.
#[derive(Clone, Copy)]
pub(super) struct Look {
    colour: RGBColor,
    mark: Mark,
    is_hollow: bool,
    dashes: Option<(i32, i32)>,
}

impl Look {
    pub(super) fn of(number: usize) -> Self {
        Self {
            colour: COLOURS[number % COLOURS.len()],
            mark: MARKS[number % MARKS.len()],
            is_hollow: number / MARKS.len() % 2 == 1,
            dashes: DASHES[number % DASHES.len()],
        }
    }

    pub(super) fn mark<'a>(&self, area: &Area<'a>, (x, y): (i32, i32)) -> Drawn<'a> {
        let inside = if self.is_hollow { WHITE } else { self.colour };
        let corners: &[(i32, i32)] = match self.mark {
            Mark::Circle => {
                area.draw(&Circle::new((x, y), 4, inside.filled()))?;
                return area.draw(&Circle::new((x, y), 4, self.colour.stroke_width(2)));
            }
            Mark::Triangle => &[(-5, 4), (5, 4), (0, -5)],
            Mark::Square => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
            Mark::Diamond => &[(-5, 0), (0, 5), (5, 0), (0, -5)],
        };
        let mut corners: Vec<(i32, i32)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        area.draw(&Polygon::new(corners.clone(), inside.filled()))?;
        corners.extend(corners.first().copied());
        area.draw(&PathElement::new(corners, self.colour.stroke_width(2)))
    }

    pub(super) fn line<'a>(&self, area: &Area<'a>, path: Vec<(i32, i32)>) -> Drawn<'a> {
        let stroke = self.colour.stroke_width(2);
        match self.dashes {
            None => area.draw(&PathElement::new(path, stroke)),
            Some((length, between)) => area.draw(&DashedPathElement::new(path, length, between, stroke)),
        }
    }
}

/// A figure's drawing, with `words` for those who do not see it; they are escaped already.
///
/// # Errors
/// If the drawing library fails.
pub fn figure(body: &Body, words: &str) -> anyhow::Result<String> {
    let attributes = format!("role=\"img\" aria-label=\"{words}\"");
    match body {
        Body::Lines { x, y, series } => {
            let height = TOP + PANEL_HEIGHT + BELOW;
            let frame = Frame { left: 0, right: RIGHT, top: TOP, bottom: TOP + PANEL_HEIGHT };
            document((WIDTH, height), &attributes, |area| lines(area, frame, (x, y), series))
        }
        Body::Bars { axis, kinds, things } => {
            let bars = Bars::new(axis, kinds.len(), things);
            document((WIDTH, bars.bottom + BELOW), &attributes, |area| bars.draw(area))
        }
    }
}

/// The mark of a series' number beside its line, for a legend.
///
/// # Errors
/// If the drawing library fails.
pub fn key(number: usize, is_line: bool) -> anyhow::Result<String> {
    let (width, class) = if is_line { (44, "key line") } else { (16, "key") };
    document((width, 16), &format!("class=\"{class}\" aria-hidden=\"true\""), |area| {
        if is_line {
            Look::of(number).line(area, vec![(1, 8), (width - 1, 8)])?;
        }
        Look::of(number).mark(area, (width / 2, 8))
    })
}

/// A document of this size that takes the width it is given.
fn document(
    (width, height): (i32, i32),
    attributes: &str,
    draw: impl for<'a> Fn(&Area<'a>) -> Drawn<'a>,
) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (width as u32, height as u32)).into_drawing_area();
        let drawn = draw(&area).and_then(|()| area.present());
        drawn.map_err(|error| anyhow!("drawing a figure: {error}"))?;
    }
    // Within a page its size is the page's to say, and its namespace is known.
    let inside = text.split_once("<svg").and_then(|(_, rest)| Some(rest.split_once('>')?.1));
    let inside = inside.ok_or_else(|| anyhow!("drawing a figure: the drawing library wrote no SVG"))?;
    Ok(format!("<svg viewBox=\"0 0 {width} {height}\" {attributes}>{inside}"))
}

/// Where a panel lies: farther right if its ticks need the room.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
}

/// Draws lines in a panel.
pub(super) fn lines<'a>(
    area: &Area<'a>,
    frame: Frame,
    (x, y): (&Axis, &Axis),
    series: &[Series],
) -> Drawn<'a> {
    let points = || series.iter().flat_map(|line| &line.points);
    let across = Scale::new(x, &points().map(|(value, _)| *value).collect::<Vec<_>>());
    let upwards = Scale::new(y, &points().flat_map(|(_, reading)| ends(reading)).collect::<Vec<_>>());
    let longest = upwards.ticks.iter().map(|(_, text)| width(text)).max().unwrap_or(0);
    let panel = Panel { frame: Frame { left: frame.left.max(longest + 36), ..frame }, across, upwards };
    panel.draw(area, &x.name, &y.name)?;
    for (number, line) in series.iter().enumerate() {
        let look = Look::of(number);
        let path: Vec<(i32, i32)> =
            line.points.iter().map(|(value, reading)| panel.at(*value, reading.value)).collect();
        if path.len() > 1 {
            look.line(area, path.clone())?;
        }
        // A mark at every point would hide the line.
        let apart = path.len().div_ceil(40).max(1);
        for (at, ((value, reading), mark)) in line.points.iter().zip(path).enumerate() {
            if let Some((least, most)) = reading.range {
                let ends = [panel.at(*value, least), panel.at(*value, most)];
                area.draw(&PathElement::new(ends, look.colour.mix(0.5).stroke_width(2)))?;
            }
            if at % apart == 0 {
                look.mark(area, mark)?;
            }
        }
    }
    Ok(())
}

/// The values that an axis must reach.
fn ends(reading: &Reading) -> Vec<f64> {
    let (least, most) = reading.range.unwrap_or((reading.value, reading.value));
    vec![least.min(reading.value), most.max(reading.value)]
}

/// The width of a text, about.
fn width(text: &str) -> i32 {
    (CHARACTER * text.chars().count() as f64) as i32
}

/// A text of at most `most` pixels.
fn fitting(text: &str, most: i32) -> String {
    let characters = (f64::from(most.max(0)) / CHARACTER) as usize;
    match text.chars().count() > characters {
        true => text.chars().take(characters.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn text(colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    style(TEXT, colour, h, v)
}

/// Ticks along the lower end of a panel, and the axis' name below them.
fn along_the_bottom<'a>(
    area: &Area<'a>,
    scale: &Scale,
    Frame { left, right, top, bottom }: Frame,
    name: &str,
) -> Drawn<'a> {
    // Texts may reach beyond either end.
    let end = right + BESIDE;
    let mut free_from = i32::MIN;
    for (value, tick) in &scale.ticks {
        let x = left + (scale.share(*value) * f64::from(right - left)).round() as i32;
        area.draw(&PathElement::new([(x, top), (x, bottom)], GRID))?;
        // Values may lie closer together than their texts have room.
        let half = width(tick) / 2 + 4;
        if x - half >= free_from {
            let x = x.clamp(half - 4, end - half + 4);
            area.draw_text(tick, &text(INK, HPos::Center, VPos::Top), (x, bottom + 7))?;
            free_from = x + half;
        }
    }
    let centre = (left + right) / 2;
    let name = fitting(name, end - 8);
    let half = width(&name) / 2;
    let centre = centre.clamp(half.min(end / 2) + 2, (end - half).max(end / 2) - 2);
    area.draw_text(&name, &text(INK, HPos::Center, VPos::Top), (centre, bottom + 26))
}

/// Two axes and what lies between them.
struct Panel {
    frame: Frame,
    across: Scale,
    upwards: Scale,
}

impl Panel {
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let Frame { left, right, top, bottom } = self.frame;
        let along = self.across.share(x) * f64::from(right - left);
        let up = self.upwards.share(y) * f64::from(bottom - top);
        (left + along.round() as i32, bottom - up.round() as i32)
    }

    fn draw<'a>(&self, area: &Area<'a>, x_name: &str, y_name: &str) -> Drawn<'a> {
        let Frame { left, right, top, bottom } = self.frame;
        for (value, tick) in &self.upwards.ticks {
            let y = bottom - (self.upwards.share(*value) * f64::from(bottom - top)).round() as i32;
            area.draw(&PathElement::new([(left, y), (right, y)], GRID))?;
            area.draw_text(tick, &text(INK, HPos::Right, VPos::Center), (left - 7, y))?;
        }
        along_the_bottom(area, &self.across, self.frame, x_name)?;
        area.draw(&PathElement::new([(left, top), (left, bottom), (right, bottom)], FAINT))?;
        let upwards = text(INK, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        area.draw_text(&fitting(y_name, bottom - top), &upwards, (14, (top + bottom) / 2))
    }
}

/// Things below each other, each with its name above its values.
struct Bars<'f> {
    axis: &'f Axis,
    /// Values are bars, or marks on a line.
    are_bars: bool,
    scale: Scale,
    things: &'f [(String, Vec<Option<Reading>>)],
    /// Height of a thing.
    height: i32,
    bottom: i32,
}

impl<'f> Bars<'f> {
    fn new(axis: &'f Axis, kinds: usize, things: &'f [(String, Vec<Option<Reading>>)]) -> Self {
        let readings = things.iter().flat_map(|(_, readings)| readings).flatten();
        let scale = Scale::new(axis, &readings.flat_map(ends).collect::<Vec<_>>());
        let are_bars = kinds == 1 && scale.begins_at_zero();
        let height = NAME + VALUE * kinds as i32;
        Self { axis, are_bars, scale, things, height, bottom: TOP + height * things.len() as i32 }
    }

    fn at(&self, value: f64) -> i32 {
        LEFT + (self.scale.share(value) * f64::from(RIGHT - LEFT)).round() as i32
    }

    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let frame = Frame { left: LEFT, right: RIGHT, top: TOP, bottom: self.bottom };
        along_the_bottom(area, &self.scale, frame, &self.axis.name)?;
        for (at, (label, readings)) in self.things.iter().enumerate() {
            let top = TOP + self.height * at as i32;
            let only = readings.first().copied().flatten().filter(|_| readings.len() == 1);
            let value = only.map(|reading| self.axis.unit.show(reading.value)).unwrap_or_default();
            let room = RIGHT - LEFT - width(&value) - 12;
            area.draw_text(&fitting(label, room), &text(INK, HPos::Left, VPos::Center), (LEFT, top + 10))?;
            area.draw_text(&value, &text(INK, HPos::Right, VPos::Center), (RIGHT, top + 10))?;
            self.readings(area, readings, top + 27)?;
        }
        area.draw(&PathElement::new([(LEFT, self.bottom), (RIGHT, self.bottom)], FAINT))
    }

    fn readings<'a>(&self, area: &Area<'a>, readings: &[Option<Reading>], y: i32) -> Drawn<'a> {
        for (number, reading) in readings.iter().enumerate() {
            let Some(reading) = reading else { continue };
            let (look, x, y) = (Look::of(number), self.at(reading.value), y + VALUE * number as i32);
            if !self.are_bars {
                area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], GRID))?;
            }
            if self.are_bars {
                area.draw(&Rectangle::new([(LEFT, y - 6), (x, y + 6)], look.colour.filled()))?;
            }
            if let Some((least, most)) = reading.range {
                let (colour, ends) =
                    (if self.are_bars { INK } else { look.colour }, [least, most].map(|end| self.at(end)));
                area.draw(&PathElement::new([(ends[0], y), (ends[1], y)], colour.stroke_width(2)))?;
                for end in ends {
                    area.draw(&PathElement::new([(end, y - 4), (end, y + 4)], colour.stroke_width(2)))?;
                }
            }
            if !self.are_bars {
                look.mark(area, (x, y))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn series_differ_without_their_colours() {
        let without_colour = |number| {
            let look = Look::of(number);
            (look.mark as u8, look.is_hollow, look.dashes)
        };
        let looks: HashSet<_> = (0..20).map(without_colour).collect();
        assert_eq!(looks.len(), 20);
    }

    #[test]
    fn texts_are_cut_where_there_is_no_room() {
        assert_eq!(fitting("fpcache", 100), "fpcache");
        assert_eq!(fitting("fpcache fpcache", 60), "fpcach…");
        assert_eq!(fitting("x", -1), "…");
    }

    #[test]
    fn a_drawing_has_its_words_and_no_size_of_its_own() {
        let points = vec![(1.0, Reading { value: 5.0, range: Some((4.0, 6.0)) }), (2.0, Reading::of(7.0))];
        let series = ["<a>", "b"].map(|label| Series { label: label.to_owned(), points: points.clone() });
        let axis = |name: &str| Axis::new(name, crate::plot::figure::Unit::Count);
        let body = Body::Lines { x: axis("<keys>"), y: axis("lookups"), series: series.to_vec() };
        let svg = figure(&body, "in words").unwrap();
        assert!(svg.starts_with("<svg viewBox=") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("aria-label=\"in words\"") && svg.contains("&lt;keys&gt;"));
        assert!(!svg.contains("http") && !svg.contains(" width=\"480\""));
    }
}
