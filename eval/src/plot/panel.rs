//! A panel of a plot: axes, grid and lines.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axes::Axis;
use super::series::{Figures, Series};
use super::style::{Area, Drawn, FAINT, GRID, INK, style};

/// Left and right end of the panels; the legend is to their right.
const PANEL_X: (i32, i32) = (96, 770);
/// Height of a panel, unless its lines' names need more.
pub const PANEL_HEIGHT: i32 = 300;

/// A pair of axes and what lies between them.
pub struct Panel {
    top: i32,
    bottom: i32,
    x: Axis,
    y: Axis,
}

impl Panel {
    /// From `top` down.
    pub fn new(top: i32, height: i32, x: Axis, y: Axis) -> Self {
        Self { top, bottom: top + height, x, y }
    }

    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let (left, right) = PANEL_X;
        let along = self.x.share(x) * f64::from(right - left);
        let up = self.y.share(y) * f64::from(self.bottom - self.top);
        (left + along.round() as i32, self.bottom - up.round() as i32)
    }

    /// Grid, ticks and names of the axes.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn draw<'a>(&self, area: &Area<'a>, x_name: &str, y_name: &str) -> Drawn<'a> {
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
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn line<'a>(
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
