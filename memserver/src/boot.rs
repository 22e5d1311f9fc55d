//! The identity of the machine's current start.

/// Names no start of the machine: it cannot be told whether memory is of this one.
pub const UNKNOWN_BOOT: [u8; 16] = [0; 16];

/// Where the kernel names this start of the machine.
pub(crate) const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// Which start of the machine this is, as the kernel names it; [`UNKNOWN_BOOT`] where it does not,
/// or where a sandbox hides it.
pub fn boot_id() -> [u8; 16] {
    std::fs::read_to_string(BOOT_ID_FILE).map_or(UNKNOWN_BOOT, |text| boot_id_in(&text))
}

fn boot_id_in(text: &str) -> [u8; 16] {
    let mut id = UNKNOWN_BOOT;
    let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|d| d as u8).collect();
    // Of one that is cut short, others may have the same beginning.
    if digits.len() == 2 * id.len() {
        id.iter_mut().zip(digits.as_chunks::<2>().0).for_each(|(byte, [high, low])| *byte = high << 4 | low);
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read_whole_or_unknown() {
        let id =
            [0x20, 0xe1, 0xa6, 0x17, 0x5d, 0xc4, 0x4e, 0x0b, 0x9f, 0x3c, 0, 0x11, 0x22, 0x33, 0x44, 0xff];
        assert_eq!(boot_id_in("20e1a617-5dc4-4e0b-9f3c-0011223344ff\n"), id);
        for text in ["", "20e1a617-5dc4-4e0b-9f3c-0011223344", "unknown\n"] {
            assert_eq!(boot_id_in(text), UNKNOWN_BOOT, "{text}");
        }
    }
}
