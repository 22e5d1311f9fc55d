//! Error-bounded piecewise linear models, slot windows and the segment directory of FPCache.
