//! The memory node of FPCache: loader and daemon.
