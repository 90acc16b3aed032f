//! Callbacks just below every threshold of slowness take their own network's places only (H2).
