//! One-sided verbs, doorbell batches and shared-memory backends for disaggregated memory.
