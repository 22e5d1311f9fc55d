//! Stand-ins for what this program was built without.

/// Types without values, with the methods of those that they stand for, which nothing can call.
macro_rules! absent {
    ($($visible:vis $type:ident { $(fn $name:ident($($argument:ty),*) -> $result:ty;)* })*) => { $(
        /// Has no values.
        #[derive(Clone, Debug)]
        $visible struct $type(#[allow(dead_code, reason = "it cannot be made")] std::convert::Infallible);

        impl $type {
            $($visible fn $name(&self, $(_: $argument),*) -> $result {
                match self.0 {}
            })*
        }
    )* };
}
pub(crate) use absent;
