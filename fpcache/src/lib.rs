//! Region layout, fingerprints and read plans of FPCache.
