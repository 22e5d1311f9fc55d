//! Decoders of files take any bytes: what libFuzzer runs for long runs here for a moment.

use proptest::prelude::*;

use crate::decoders;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    // Few values, so that counts and lengths often make sense.
    let small = prop::collection::vec(prop_oneof![0..4u8, any::<u8>()], 0..300);
    prop_oneof![small, prop::collection::vec(any::<u8>(), 0..5000)]
}

proptest! {
    #[test]
    fn no_bytes_of_a_file_cause_a_panic(bytes in bytes()) {
        decoders::log_file(&bytes);
        decoders::snapshot(&bytes);
    }
}
