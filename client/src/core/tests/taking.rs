//! What takes a scan's records may panic.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fpcache::read::Wanted;

use super::*;

/// Its thread kept the records that the scan had found.
#[test]
fn a_scan_keeps_no_records_if_what_takes_them_panics() {
    let setup = Setup::new();
    let up = || {
        let mut rest = Rest::new(0, usize::MAX);
        let stop = |_: u64, _: &[u8]| panic!("the caller's");
        setup.core.here(|held| setup.core.scan::<()>(held, &mut rest, (None, Wanted::Value), PATIENCE, stop))
    };
    let down = || {
        let mut rest = Rest::new(Bound::Unbounded, usize::MAX);
        let stop = |_: u64, _: &[u8]| panic!("the caller's");
        setup.core.here(|held| setup.core.scan_back::<()>(held, &mut rest, &0, PATIENCE, stop))
    };
    let scans: [&dyn Fn() -> Result<_, ClientError>; 2] = [&up, &down];
    for scan in scans {
        assert!(catch_unwind(AssertUnwindSafe(scan)).is_err());
        let kept = setup.core.here(|held| format!("{:?}", held.as_ref().expect("it has read").buffers.scan));
        assert!(kept.contains("records: []"), "it keeps them");
    }
}
