//! Lanes: which kind of work a request is, and which kinds may begin now.

/// What kind of work a request is. Each has a share of all requests under way, so that none can crowd out the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The first attempt at a notification.
    First,
    /// Another attempt after a failure.
    Retry,
    /// Any attempt to a host that has been slow lately.
    Slow,
}

impl Lane {
    pub(crate) const ALL: [Self; 3] = [Self::First, Self::Retry, Self::Slow];

    /// Of so many permits, those that retries may hold, or requests to slow hosts; first attempts may hold all.
    pub(super) fn share(self, permits: usize) -> usize {
        match self {
            Self::First => permits,
            Self::Retry => permits / 4,
            Self::Slow => permits / 5,
        }
    }

    /// What metrics call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::Slow => "slow",
        }
    }
}

/// The lanes that have permits left. Where none has, the permits that are reserved for networks with few requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenLanes {
    open: [bool; 3],
    scarce: bool,
    spare: usize,
}

impl OpenLanes {
    #[cfg(test)]
    pub(super) const ALL: Self = Self { open: [true; 3], scarce: false, spare: 0 };

    pub(super) fn new(has_permit: impl Fn(Lane) -> bool) -> Self {
        Self { open: Lane::ALL.map(has_permit), scarce: false, spare: 0 }
    }

    /// These lanes where all permits but so many are taken. A network may have one of them while it has fewer under way than are left, so
    /// that there is always one for a network without requests.
    pub(super) fn with_spare(self, spare: usize) -> Self {
        Self { scarce: true, spare, ..self }
    }

    pub(crate) fn any(self) -> bool {
        self.open.contains(&true)
    }

    pub(crate) fn has(self, lane: Lane) -> bool {
        self.open[lane as usize]
    }

    /// Whether only reserved permits are left.
    pub(crate) fn is_scarce(self) -> bool {
        self.scarce
    }

    pub(crate) fn spare(self) -> usize {
        self.spare
    }
}
