//! Figures: what they show, and how they are drawn as SVG, on a page among others or as a sheet of
//! their own.

pub mod draw;
pub mod figure;
pub mod scale;
pub mod sheet;
pub mod style;
