//! Colours and texts of plots.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What is drawn on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether the drawing library drew it.
pub type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

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

/// Text of a size in pixels, a colour and an anchor.
pub fn style(size: i32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    /// The library takes the height of a line, and a line of text is so much higher than its font.
    const LINE: f64 = 1.24;
    ("sans-serif", f64::from(size) * LINE).into_font().color(&colour).pos(Pos::new(h, v))
}
