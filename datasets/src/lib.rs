//! SOSD files, calibrated stand-ins and request streams.
