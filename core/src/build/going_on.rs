//! The methods of every generator of a series of change documents.

/// Gives a generator with fields `settings` and `course` the methods of every series of change documents.
macro_rules! going_on {
    ($generator:ident, $kind:ident) => {
        impl $generator {
            /// When a document is closed and the next one opened; the entries of a dump are packages.
            pub fn rotation(mut self, rotation: $crate::build::Rotation) -> Self {
                self.course.rotation = rotation;
                self
            }

            /// Goes on after a run that failed and may have recorded some of its changes: the next `record` gets all changes since
            /// `position`, the very ones that the failed run got, and passes over those that are recorded already.
            pub fn resume(mut self, position: $crate::build::Position) -> Self {
                self.course.position = Some(position);
                self
            }

            /// Closes the series for good: the next `record` gets the last changes there will ever be, and its last moment becomes the
            /// `until` of document and index. Where nobody knows whether such a run failed, the same call with the position that it
            /// [resumed](Self::resume) at completes it.
            pub fn close(mut self) -> Self {
                self.course.is_last = true;
                self
            }

            /// Up to when the published documents have all changes: the moment of the last one of a list, or at which they were closed for
            /// good. `None` before the first run.
            pub fn end<D: $crate::build::Documents>(
                &self,
                documents: &D,
            ) -> Result<Option<$crate::datetime::DateTime>, $crate::build::BuildError> {
                self.series().end(documents)
            }

            /// How far the published documents have come; the entries of a dump are packages.
            pub fn position<D: $crate::build::Documents>(
                &self,
                documents: &D,
            ) -> Result<$crate::build::Position, $crate::build::BuildError> {
                self.series().position(documents)
            }

            /// Moves what was closed at `before` or earlier into the archive, from which it can be had under the same URIs, so that the
            /// index lists what is of interest and never fills up (AR-014, AR-016).
            ///
            /// The archive is called after the stem, such as `changelist-archive.xml`; the index points at it. It is written first: a run that
            /// was killed leaves some documents in both, and the next one goes on. `at` is the moment of the run. Nothing to archive
            /// publishes nothing.
            pub fn archive<S: $crate::build::Sink>(
                &self,
                sink: &mut S,
                before: $crate::datetime::DateTime,
                at: $crate::datetime::DateTime,
            ) -> Result<$crate::build::Published, $crate::build::BuildError> {
                self.series().archive(sink, before, at)
            }

            fn series(&self) -> $crate::build::rotation::Series<'_> {
                $crate::build::rotation::Series {
                    kind: $crate::build::rotation::Kind::$kind,
                    settings: &self.settings,
                    rotation: self.course.rotation,
                }
            }
        }
    };
}

pub(super) use going_on;
