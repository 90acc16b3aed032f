//! What a topic says about itself is weighed once it is resolved, wherever it is kept or sent (C1).
