//! Error-bounded piecewise linear regression: the longest run of keys that one line predicts within
//! ε ranks.
//!
//! The online algorithm of O'Rourke ("An on-line algorithm for fitting straight lines between data
//! ranges", CACM 24(9), 1981), taken to time series by Xie et al. ("Maximum error-bounded piecewise
//! linear representation for online stream approximation", VLDB Journal 23(6), 2014, §4) and to
//! learned indexes by Ferragina and Vinciguerra (PVLDB 13(8), 2020, §2.1). Greedily closing a piece
//! only when no line fits it gives the minimum number of pieces, because every part of a feasible
//! run is feasible.
//!
//! Key `i` of a piece, at distance `x` from the first, demands a line between its *floor*
//! `(x, i - ε)` and its *ceiling* `(x, i + ε)`. Of all lines that serve the keys so far two suffice
//! to judge the next key: the *steepest* touches a floor on its left and a ceiling on its right,
//! the *flattest* a ceiling on its left and a floor on its right. At every `x` right of the keys
//! they are the highest and the lowest line. Only floors on the floors' upper hull and ceilings on
//! the ceilings' lower hull can be touched, and the touched points only ever move to the right, so
//! each point enters and leaves a hull once: O(1) amortised per key.
//!
//! Slopes may be negative on the way. That costs no piece its monotony: a line falls only where at
//! most 2ε + 1 keys lie together, and these a flat line serves too.
//!
//! Keys may share a coordinate where the caller allows it. Of the floors at one distance only the
//! highest counts, of the ceilings the lowest, which came first; and no line is drawn between two
//! points at one distance.
//!
//! All arithmetic is exact. Distances have 64 bits and differences of ranks fewer than 63, so that
//! products fit an `i128`; while a piece is narrow enough they fit an `i64`, which takes half the
//! time.

/// Slope of a line as rise in ranks over run in coordinates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slope {
    pub rise: i64,
    /// Never 0.
    pub run: u64,
}

impl Slope {
    const FLAT: Self = Self { rise: 0, run: 1 };
}

/// A floor or a ceiling.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Distance from the first key of the piece.
    x: u64,
    /// Rank, less or plus ε.
    y: i64,
}

/// A line through a point that it touches.
#[derive(Clone, Copy, Debug)]
struct Tangent {
    at: Point,
    slope: Slope,
}

impl Tangent {
    fn through(at: Point, to: Point) -> Self {
        Self { at, slope: Slope { rise: to.y - at.y, run: to.x - at.x } }
    }
}

/// The products of exact comparisons: `i128` always suffices, `i64` for narrow pieces.
trait Product: Copy + Ord + std::ops::Add<Output = Self> {
    fn of(y: i64, x: u64) -> Self;
}

impl Product for i128 {
    #[inline(always)]
    fn of(y: i64, x: u64) -> Self {
        i128::from(y) * i128::from(x)
    }
}

impl Product for i64 {
    #[inline(always)]
    fn of(y: i64, x: u64) -> Self {
        y * x as i64
    }
}

/// Distances below this and ranks below [`NARROW_RANKS`] keep every product, and the sum of two,
/// inside an `i64`.
const NARROW_RUN: u64 = 1 << 32;
const NARROW_RANKS: i64 = 1 << 28;

/// Hull points from which the touched one is found by walking right.
#[derive(Clone, Debug, Default)]
struct Hull {
    points: Vec<Point>,
    /// The point that the tangent touches; those before it can never be touched again.
    touched: usize,
}

impl Hull {
    fn restart(&mut self, first: Point) {
        self.points.clear();
        self.points.push(first);
        self.touched = 0;
    }

    /// Moves to the point from which the line to `to` leaves the whole hull on one side: above it
    /// for the floors (`SIGN` 1, least slope), below it for the ceilings (`SIGN` -1, greatest
    /// slope).
    #[inline(always)]
    fn touch<P: Product, const SIGN: i64>(&mut self, to: Point) -> Tangent {
        let points = &self.points[self.touched..];
        let mut best = Tangent::through(points[0], to);
        let mut steps = 0;
        for &point in &points[1..] {
            let next = Tangent::through(point, to);
            let (a, b) = (next.slope, best.slope);
            if P::of(SIGN * a.rise, b.run) > P::of(SIGN * b.rise, a.run) {
                break;
            }
            best = next;
            steps += 1;
        }
        self.touched += steps;
        best
    }

    /// Adds a point right of all others; drops those that it hides. `SIGN` as for [`Hull::touch`].
    #[inline(always)]
    fn push<P: Product, const SIGN: i64>(&mut self, new: Point) {
        let mut len = self.points.len();
        while len >= self.touched + 2 {
            let (a, b) = (self.points[len - 2], self.points[len - 1]);
            let (old, edge) = (Tangent::through(a, b).slope, Tangent::through(a, new).slope);
            // The middle point stays if the hull bends towards the inside there.
            if P::of(SIGN * old.rise, edge.run) > P::of(SIGN * edge.rise, old.run) {
                break;
            }
            len -= 1;
        }
        self.points.truncate(len);
        self.points.push(new);
    }
}

/// Fits one piece at a time.
#[derive(Clone, Debug)]
pub(crate) struct Fitter {
    epsilon: i64,
    first: u64,
    keys: u64,
    /// Keys at the first one's coordinate.
    at_first: i64,
    floors: Hull,
    ceilings: Hull,
    steepest: Tangent,
    flattest: Tangent,
}

impl Fitter {
    pub(crate) fn new(epsilon: u32) -> Self {
        let nowhere = Tangent { at: Point { x: 0, y: 0 }, slope: Slope::FLAT };
        Self {
            epsilon: i64::from(epsilon),
            first: 0,
            keys: 0,
            at_first: 0,
            floors: Hull::default(),
            ceilings: Hull::default(),
            steepest: nowhere,
            flattest: nowhere,
        }
    }

    /// Keys of the open piece.
    #[inline]
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// First key of the open piece.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Slopes of the flattest and of the steepest line of the open piece; both 0 while a single
    /// coordinate determines none.
    pub(crate) fn slopes(&self) -> (Slope, Slope) {
        if self.keys as i64 == self.at_first {
            (Slope::FLAT, Slope::FLAT)
        } else {
            (self.flattest.slope, self.steepest.slope)
        }
    }

    pub(crate) fn clear(&mut self) {
        self.keys = 0;
        self.at_first = 0;
    }

    /// Opens a piece with key `x`.
    pub(crate) fn restart(&mut self, x: u64) {
        self.first = x;
        self.keys = 1;
        self.at_first = 1;
        self.floors.restart(Point { x: 0, y: -self.epsilon });
        self.ceilings.restart(Point { x: 0, y: self.epsilon });
    }

    /// Adds key `x`, which must be above all keys of the open piece, if a line still serves them
    /// all; says whether.
    #[inline]
    pub(crate) fn extend(&mut self, x: u64) -> bool {
        let distance = x.wrapping_sub(self.first);
        // A piece's ranks stay below 2^61: it would take as many keys to get there.
        let rank = self.keys as i64;
        if distance < NARROW_RUN && rank + 2 * self.epsilon < NARROW_RANKS {
            self.extend_by::<i64>(distance, rank)
        } else {
            self.extend_by::<i128>(distance, rank)
        }
    }

    /// Adds a key at the coordinate `x` of the last one, if a line still serves them all; says
    /// whether.
    pub(crate) fn extend_equal(&mut self, x: u64) -> bool {
        let distance = x.wrapping_sub(self.first);
        let rank = self.keys as i64;
        let floor = Point { x: distance, y: rank - self.epsilon };
        if rank == self.at_first {
            // The ceiling of the first key is the lowest here.
            if floor.y > self.epsilon {
                return false;
            }
            self.floors.restart(floor);
            self.at_first += 1;
        } else {
            let floor_on_steepest = i128::of(floor.y - self.steepest.at.y, self.steepest.slope.run);
            if floor_on_steepest > above::<i128>(self.steepest, distance) {
                return false;
            }
            let floor_on_flattest = i128::of(floor.y - self.flattest.at.y, self.flattest.slope.run);
            if floor_on_flattest > above::<i128>(self.flattest, distance) {
                // Between the last ceiling and a floor at its own distance runs no line.
                let last = self.ceilings.points.pop();
                self.flattest = self.ceilings.touch::<i128, -1>(floor);
                self.ceilings.points.extend(last);
            }
            // It hides the floor below it and whatever that one hid.
            self.floors.points.pop();
            self.floors.push::<i128, 1>(floor);
        }
        self.keys += 1;
        true
    }

    #[inline(always)]
    fn extend_by<P: Product>(&mut self, x: u64, rank: i64) -> bool {
        let floor = Point { x, y: rank - self.epsilon };
        let ceiling = Point { x, y: rank + self.epsilon };
        if rank == self.at_first {
            self.steepest = Tangent::through(self.floors.points[0], ceiling);
            self.flattest = Tangent::through(self.ceilings.points[0], floor);
        } else {
            let steepest = above::<P>(self.steepest, x);
            let flattest = above::<P>(self.flattest, x);
            let floor_on_steepest = P::of(floor.y - self.steepest.at.y, self.steepest.slope.run);
            let ceiling_on_flattest = P::of(ceiling.y - self.flattest.at.y, self.flattest.slope.run);
            if floor_on_steepest > steepest || ceiling_on_flattest < flattest {
                return false;
            }
            let height = 2 * self.epsilon;
            if floor_on_steepest + P::of(height, self.steepest.slope.run) < steepest {
                self.steepest = self.floors.touch::<P, 1>(ceiling);
            }
            if ceiling_on_flattest + P::of(-height, self.flattest.slope.run) > flattest {
                self.flattest = self.ceilings.touch::<P, -1>(floor);
            }
        }
        self.floors.push::<P, 1>(floor);
        self.ceilings.push::<P, -1>(ceiling);
        self.keys += 1;
        true
    }
}

/// Height of the line over its touched point at `x`, times the line's run.
#[inline(always)]
fn above<P: Product>(line: Tangent, x: u64) -> P {
    P::of(line.slope.rise, x - line.at.x)
}
