//! Separators of both kinds that ascend with a number, so that one suite runs over all.

use fpcache_index::DirectoryKey;

type Owned<N> = <<N as Numbering>::Key as ToOwned>::Owned;

/// Makes separators of numbers, which ascend as the numbers do.
pub trait Numbering {
    type Key: DirectoryKey + ?Sized;

    /// How many numbers a test may use that visits them all.
    const MOST: u32 = 6_000;

    fn separator(number: u32) -> Owned<Self>;

    /// The number of a separator.
    fn number(separator: &Self::Key) -> u32;

    /// How many bytes two separators share, as the directory should say.
    fn shared(a: &Self::Key, b: &Self::Key) -> usize;
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// `u64`s.
pub struct Words;

impl Numbering for Words {
    type Key = u64;

    fn separator(number: u32) -> u64 {
        u64::from(number) << 20
    }

    fn number(separator: &u64) -> u32 {
        (separator >> 20) as u32
    }

    fn shared(_: &u64, _: &u64) -> usize {
        0
    }
}

macro_rules! byte_numbering {
    ($(#[$doc:meta])* $name:ident, $most:expr, $separator:expr, $number:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl Numbering for $name {
            type Key = [u8];

            const MOST: u32 = $most;

            fn separator(number: u32) -> Vec<u8> {
                ($separator)(number)
            }

            fn number(separator: &[u8]) -> u32 {
                ($number)(separator)
            }

            fn shared(a: &[u8], b: &[u8]) -> usize {
                shared_bytes(a, b)
            }
        }
    };
}

byte_numbering! {
    /// Eight bytes, the lower half zeros.
    WordsOfBytes, 6_000,
    |number: u32| (u64::from(number) << 20).to_be_bytes().to_vec(),
    |separator: &[u8]| (u64::from_be_bytes(separator.try_into().expect("8 bytes")) >> 20) as u32
}

byte_numbering! {
    /// Digits without the zeros at their end, so that some are prefixes of others; the lowest is
    /// empty.
    Decimal, 6_000,
    |number: u32| format!("{number:06}").trim_end_matches('0').into(),
    |separator: &[u8]| {
        let digits = std::str::from_utf8(separator).expect("digits");
        format!("{digits:0<6}").parse().expect("a number")
    }
}

/// Shared beginnings of many lengths, with zeros and highest bytes, of which heads of seven bytes
/// tell little.
const FOLDERS: [&[u8]; 4] = [b"alpha/a rather long folder/", b"alphabet/", b"zero\0\0", b"\xFF\xFF\xFF\xFE"];

fn path(number: u32) -> Vec<u8> {
    let digits = (0..9).rev().map(|place| number >> (2 * place) & 3);
    let mut path: Vec<u8> = digits.clone().flat_map(|digit| FOLDERS[digit as usize]).copied().collect();
    path.extend(digits.map(|digit| digit as u8));
    path
}

fn number_of_path(separator: &[u8]) -> u32 {
    let digits = separator.last_chunk::<9>().expect("a path");
    digits.iter().fold(0, |number, digit| number << 2 | u32::from(*digit))
}

byte_numbering! { Paths, 4_000, path, number_of_path }

byte_numbering! {
    /// Each a prefix of the next, up to 4 KiB and far beyond.
    Unary, 800, |number: u32| vec![0; number as usize * 6], |separator: &[u8]| separator.len() as u32 / 6
}

/// Makes a test of every function, over every numbering.
macro_rules! for_every_numbering {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            use super::separators;

            #[test]
            fn words() {
                super::$test::<separators::Words>();
            }

            #[test]
            fn words_of_bytes() {
                super::$test::<separators::WordsOfBytes>();
            }

            #[test]
            fn decimal() {
                super::$test::<separators::Decimal>();
            }

            #[test]
            fn paths() {
                super::$test::<separators::Paths>();
            }

            #[test]
            fn unary() {
                super::$test::<separators::Unary>();
            }
        })*
    };
}
pub(crate) use for_every_numbering;
