//! What takes a scan's records may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fpcache::read::Wanted;

use super::*;
use crate::span::Span;

/// Its thread kept the records that the scan had found.
#[test]
fn a_scan_keeps_no_records_if_what_takes_them_panics() {
    let setup = Setup::new();
    let scan = |is_down| {
        let mut rest = Some(Section { span: Span::all(), limit: usize::MAX, is_down });
        let stop = |_: u64, _: &[u8]| panic!("the caller's");
        setup.core.here(|held| setup.core.scan::<()>(held, &mut rest, Wanted::Value, PATIENCE, stop))
    };
    for is_down in [false, true] {
        assert!(catch_unwind(AssertUnwindSafe(|| scan(is_down))).is_err());
        let kept = setup.core.here(|held| format!("{:?}", held.as_ref().expect("it has read").buffers.scan));
        assert!(kept.contains("records: []"), "it keeps them");
    }
}
