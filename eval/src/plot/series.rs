//! The lines of a plot and their points.

use plotters::prelude::*;

use super::style::{Area, COLOURS, Drawn};

/// A line of the plot.
pub struct Series {
    /// As the legend has it.
    pub label: String,
    /// Of line and marks.
    pub colour: RGBColor,
    /// Lines beyond the number of colours have hollow marks.
    pub is_hollow: bool,
    /// From left to right.
    pub points: Vec<Figures>,
}

impl Series {
    /// A line without points, told apart from the others.
    pub fn next(others: &[Self], label: String) -> Self {
        let colour = COLOURS[others.len() % COLOURS.len()];
        Self { label, colour, is_hollow: others.len() >= COLOURS.len(), points: Vec::new() }
    }

    /// Draws the mark of a point.
    ///
    /// # Errors
    /// If the drawing library fails.
    pub fn mark<'a>(&self, area: &Area<'a>, at: (i32, i32)) -> Drawn<'a> {
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
