//! Shared by the behaviour tests.
#![allow(dead_code)]

/// Counts the segments of a minimum ε-bounded piecewise linear approximation of points with
/// distinct ascending x: the greedy cover by O'Rourke's feasible-line hulls, written independently
/// of the crate under test and for any y.
pub struct Fitter {
    epsilon: i128,
    /// The tangents that bound the slope, as point pairs: the shallowest (upper to lower) and the
    /// steepest.
    rectangle: [(i128, i128); 4],
    upper: Vec<(i128, i128)>,
    lower: Vec<(i128, i128)>,
    upper_start: usize,
    lower_start: usize,
    points: u64,
    pub segments: u64,
}

fn minus(a: (i128, i128), b: (i128, i128)) -> (i128, i128) {
    (a.0 - b.0, a.1 - b.1)
}

/// Positive when the turn from direction a to direction b is to the left.
fn cross(a: (i128, i128), b: (i128, i128)) -> i128 {
    a.0 * b.1 - a.1 * b.0
}

impl Fitter {
    pub fn new(epsilon: u32) -> Self {
        Self {
            epsilon: i128::from(epsilon),
            rectangle: [(0, 0); 4],
            upper: Vec::new(),
            lower: Vec::new(),
            upper_start: 0,
            lower_start: 0,
            points: 0,
            segments: 0,
        }
    }

    pub fn count(points: impl IntoIterator<Item = (u64, u64)>, epsilon: u32) -> u64 {
        let mut fitter = Self::new(epsilon);
        points.into_iter().for_each(|(x, y)| fitter.push(x, y));
        fitter.segments
    }

    pub fn push(&mut self, x: u64, y: u64) {
        let (x, y) = (i128::from(x), i128::from(y));
        let (top, bottom) = ((x, y + self.epsilon), (x, y - self.epsilon));
        match self.points {
            0 => {
                self.segments += 1;
                self.rectangle = [top, bottom, bottom, top];
                (self.upper, self.lower) = (vec![top], vec![bottom]);
                (self.upper_start, self.lower_start) = (0, 0);
            }
            1 => {
                self.rectangle[2] = bottom;
                self.rectangle[3] = top;
                self.upper.push(top);
                self.lower.push(bottom);
            }
            _ => {
                let [r0, r1, r2, r3] = self.rectangle;
                let (shallow, steep) = (minus(r2, r0), minus(r3, r1));
                if cross(shallow, minus(top, r2)) < 0 || cross(steep, minus(bottom, r3)) > 0 {
                    self.points = 0;
                    return self.push(x as u64, y as u64);
                }
                if cross(steep, minus(top, r1)) < 0 {
                    let at = (self.lower_start..self.lower.len())
                        .take_while(|&i| {
                            i == self.lower_start
                                || cross(minus(top, self.lower[i - 1]), minus(top, self.lower[i])) <= 0
                        })
                        .last()
                        .unwrap();
                    self.rectangle[1] = self.lower[at];
                    self.rectangle[3] = top;
                    self.lower_start = at;
                    let keep = hull_end(&self.upper, self.upper_start, top, 1);
                    self.upper.truncate(keep);
                    self.upper.push(top);
                }
                if cross(shallow, minus(bottom, r0)) > 0 {
                    let at = (self.upper_start..self.upper.len())
                        .take_while(|&i| {
                            i == self.upper_start
                                || cross(minus(bottom, self.upper[i - 1]), minus(bottom, self.upper[i])) >= 0
                        })
                        .last()
                        .unwrap();
                    self.rectangle[0] = self.upper[at];
                    self.rectangle[2] = bottom;
                    self.upper_start = at;
                    let keep = hull_end(&self.lower, self.lower_start, bottom, -1);
                    self.lower.truncate(keep);
                    self.lower.push(bottom);
                }
            }
        }
        self.points += 1;
    }
}

/// How much of a hull stays when `point` joins it: `side` 1 keeps it convex from below, −1 from
/// above.
fn hull_end(hull: &[(i128, i128)], start: usize, point: (i128, i128), side: i128) -> usize {
    let mut end = hull.len();
    while end >= start + 2
        && side * cross(minus(hull[end - 1], hull[end - 2]), minus(point, hull[end - 2])) <= 0
    {
        end -= 1;
    }
    end
}
