//! A quantised line in eight bytes.

/// A non-decreasing line from a distance (`u64`) to a slot (`i64`), quantised to eight bytes and
/// evaluated in integers only, so that it gives the same slot on every CPU.
///
/// | bits  | field                                                  |
/// |-------|--------------------------------------------------------|
/// | 0–31  | slope mantissa `m`, unsigned                           |
/// | 32–39 | slope `shift`, unsigned: the slope is `m / 2^shift`    |
/// | 40–63 | intercept in 1/256 slot, two's complement              |
///
/// The slot at distance `dx` is `floor(dx * m / 2^shift + intercept / 256)`: one floor, of the exact
/// rational. Every bit pattern is a line, so bits read from another process need no check before
/// use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Line(u64);

/// Units of the intercept per slot, as a power of two.
pub(crate) const FRACTION_BITS: u32 = 8;

impl Line {
    /// The line with the given bits. Never fails; see the table above.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits of the line, to be stored as a little-endian word.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// `floor(2^bits * (dx * m / 2^shift + intercept / 256))` for 8 to 16 bits, clamped to ±2^62.
    #[inline]
    pub(crate) fn fraction(self, dx: u64, bits: u8) -> i64 {
        debug_assert!((8..=16).contains(&bits));
        let product = u128::from(dx) * u128::from(self.0 as u32);
        let shift = u32::from((self.0 >> 32) as u8);
        // The product has at most 96 bits: 16 more fit.
        let rise = (product << bits).checked_shr(shift).unwrap_or(0).min(1 << 62) as i64;
        (rise + (self.intercept() << (u32::from(bits) - FRACTION_BITS))).min(1 << 62)
    }

    /// The slot at distance `dx`, clamped to `0..=last`, which is below 2^16; 0 if `last` is below.
    #[inline(always)]
    pub(crate) fn value_below(self, dx: u64, last: i64) -> i64 {
        // floor(floor(256 * slope * dx) + c) / 256) = floor(slope * dx + c / 256), because c is an
        // integer and the floor of a quotient by an integer may be taken after the floor of its
        // dividend.
        let (shift, mantissa) = ((self.0 >> 32) as u8, u64::from(self.0 as u32));
        let scaled = if shift.wrapping_sub(42) < 64 {
            // Keys that lie 2^11 apart or more, of which the high word of a product is enough: it is
            // below 2^62, and what follows is no more.
            let rise = (u128::from(dx) * u128::from(mantissa << 30)) >> 64;
            (rise as u64 >> (shift - 42)) as i64
        } else if (10..42).contains(&shift) {
            // Keys that lie closer together, of which the low word is enough. A product that has more
            // is at or above 2^31 once shifted, and no intercept brings it back.
            dx.checked_mul(mantissa).map_or(1 << 56, |product| product >> (shift - 8)) as i64
        } else {
            // Past 2^48 slots no intercept brings it back.
            self.scaled(dx).min(1 << 56) as i64
        };
        ((scaled + self.intercept()) >> FRACTION_BITS).min(last).max(0)
    }

    pub(crate) const MIN_INTERCEPT: i64 = -(1 << 23);
    pub(crate) const MAX_INTERCEPT: i64 = (1 << 23) - 1;

    /// The line of slope `mantissa / 2^shift` and `intercept / 256`, the latter within the limits
    /// above.
    pub(crate) const fn new(mantissa: u32, shift: u8, intercept: i64) -> Self {
        Self((intercept << 40) as u64 | (shift as u64) << 32 | mantissa as u64)
    }

    pub(crate) const fn with_intercept(self, intercept: i64) -> Self {
        Self((intercept << 40) as u64 | self.0 & 0xff_ffff_ffff)
    }

    #[inline]
    const fn intercept(self) -> i64 {
        self.0 as i64 >> 40
    }

    /// `floor(256 * slope * dx)`, below 2^104.
    #[inline]
    pub(crate) fn scaled(self, dx: u64) -> u128 {
        let product = u128::from(dx) * u128::from(self.0 as u32);
        let shift = (self.0 >> 32) as u8;
        // The product has at most 96 bits: 8 more fit.
        (product << FRACTION_BITS).checked_shr(u32::from(shift)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The last slot that a segment can have.
    const LAST: i64 = u16::MAX as i64;

    /// The definition in other words: floors by long division, on numbers that hold every digit.
    fn by_definition(line: Line, dx: u64) -> i64 {
        let bits = line.to_bits();
        let (mantissa, shift) = (u128::from(bits as u32), (bits >> 32) as u8);
        let intercept = i128::from(((bits >> 40) as i32) << 8 >> 8);
        // value = (dx * m * 256 + intercept * 2^shift) / (256 * 2^shift)
        let numerator = i128::from(dx) * mantissa as i128 * 256;
        let value = if shift < 96 {
            // |intercept * 2^shift| < 2^119 and the numerator < 2^104.
            (numerator + (intercept << shift)).div_euclid(256 << shift)
        } else {
            // The intercept is an integer, so the slope's share may be floored first.
            let share = if shift >= 120 { 0 } else { numerator >> shift };
            (share + intercept).div_euclid(256)
        };
        value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    #[test]
    fn golden_vectors() {
        let vectors: [(u64, u64, i64); 18] = [
            (0x0000_0000_0000_0000, u64::MAX, 0),
            (0x0000_0000_0000_0001, 1_000, 1_000),
            (0x0000_0000_0000_0001, 0x4000000000000000, 4_611_686_018_427_387_904),
            (0x0000_0000_0000_0001, u64::MAX, i64::MAX),
            (0x0000_0000_ffff_ffff, u64::MAX, i64::MAX),
            (0x0000_0001_0000_0001, 7, 3),
            (0x0000_7f01_0000_0001, 7, 3),
            (0x0000_8001_0000_0001, 7, 4),
            (0xffff_7f01_0000_0001, 7, 2),
            (0xffff_ff00_0000_0000, 5, -1),
            (0xffff_0000_0000_0000, 5, -1),
            (0x8000_0000_0000_0000, 0, -32_768),
            (0x7fff_ff00_0000_0000, 0, 32_767),
            (0x0000_283e_c0c0_c0c1, 0x2000000000000000, 1_616_928_864),
            (0xffe1_235d_c0c0_c0c1, 0xfedcba9876543210, -25),
            (0x0000_0040_ffff_ffff, u64::MAX, 4_294_967_294),
            (0x0000_00ff_ffff_ffff, u64::MAX, 0),
            (0xffff_ffff_ffff_ffff, u64::MAX, -1),
        ];
        for (bits, dx, value) in vectors {
            let line = Line::from_bits(bits);
            assert_eq!(line.to_bits(), bits);
            assert_eq!(by_definition(line, dx), value, "bits {bits:#018x} dx {dx}");
            assert_eq!(line.value_below(dx, LAST), value.clamp(0, LAST), "bits {bits:#018x} dx {dx}");
        }
    }

    #[test]
    fn fields_lie_where_the_layout_says() {
        let line = Line::new(0x89ab_cdef, 0x45, -2);
        assert_eq!(line.to_bits(), 0xffff_fe45_89ab_cdef);
        assert_eq!(line.with_intercept(0x123456).to_bits(), 0x1234_5645_89ab_cdef);
        assert_eq!(line.intercept(), -2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_bit_pattern_has_the_defined_value(bits: u64, dx: u64, shift in 0u32..64, last in 0..=LAST) {
            let line = Line::from_bits(bits);
            for dx in [dx, dx >> shift, 0, 1, u64::MAX] {
                prop_assert_eq!(line.value_below(dx, last), by_definition(line, dx).clamp(0, last), "dx {}", dx);
            }
        }

        /// Most bit patterns lie far outside every segment; these cross it.
        #[test]
        fn values_about_a_segments_slots_are_as_defined(
            mantissa: u32, shift in 0u8..=130, intercept in Line::MIN_INTERCEPT..=Line::MAX_INTERCEPT,
            slot in 0u64..80_000, off in -3i64..=3,
        ) {
            let line = Line::new(mantissa, shift, intercept);
            let at = (u128::from(slot) << shift.min(100)) / u128::from(mantissa.max(1));
            let dx = u64::try_from(at).unwrap_or(u64::MAX).saturating_add_signed(off);
            prop_assert_eq!(line.value_below(dx, LAST), by_definition(line, dx).clamp(0, LAST));
        }

        #[test]
        fn values_never_decrease(bits: u64, a: u64, b: u64, shift in 0u32..64) {
            let line = Line::from_bits(bits & !(0xff << 32) | u64::from(shift) << 32);
            prop_assert!(line.value_below(a.min(b), LAST) <= line.value_below(a.max(b), LAST));
        }
    }
}
