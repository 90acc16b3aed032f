//! `traceparent`: which trace a request belongs to, and which span of it the request was made in (W3C Trace Context, 3.2).

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header field.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of a value of version 00, and of what any later version begins with.
const LENGTH: usize = 55;
/// The version that is never valid.
const NO_VERSION: u128 = 0xff;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;
/// The flag of a trace whose id is random (Level 2).
const RANDOM: u8 = 2;
/// The flag, kept and never sent, of a trace that this hub has chosen to record.
const RECORDED: u8 = 4;

/// A position in a trace. It is always valid: no id is all zeros, and only known flags are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// How many bytes [`TraceContext::to_bytes`] makes.
    pub const BYTES: usize = 25;

    /// The context of a request; `None` where it has none, several, or one that is not valid: then it begins anew (4.3).
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut fields = headers.get_all(TRACEPARENT).iter();
        let only = fields.next()?;
        if fields.next().is_some() { None } else { Self::parse(only.as_bytes()) }
    }

    /// Reads a value. Of later versions the beginning is read, which they share.
    ///
    /// ```
    /// use resync_hub::telemetry::TraceContext;
    ///
    /// let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// assert_eq!(TraceContext::parse(value.as_bytes()).unwrap().to_string(), value);
    /// ```
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(LENGTH)?;
        let version = number(&known[..2])?;
        let ends_well = match version {
            0 => more.is_empty(),
            NO_VERSION => false,
            _ => more.first().is_none_or(|next| *next == b'-'),
        };
        if !ends_well || [2, 35, 52].iter().any(|at| known[*at] != b'-') {
            return None;
        }
        let flags = u8::try_from(number(&known[53..])?).ok()?;
        Self::valid(
            number(&known[3..35])?.to_be_bytes(),
            u64::try_from(number(&known[36..52])?).ok()?.to_be_bytes(),
            flags & if version == 0 { SAMPLED | RANDOM } else { SAMPLED },
        )
    }

    /// The beginning of a new trace, to be recorded.
    pub fn begin() -> Self {
        Self { trace: Uuid::new_v4().into_bytes(), span: new_span(), flags: SAMPLED | RANDOM }
    }

    /// A new position in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: new_span(), ..self }
    }

    /// Whether the client records the trace.
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// This position, marked as recorded by this hub: so is all that follows, also after a restart.
    #[must_use]
    pub(crate) fn recorded(self) -> Self {
        Self { flags: self.flags | RECORDED, ..self }
    }

    /// Whether this hub has chosen to record the trace. No header says so.
    pub(crate) fn is_recorded(self) -> bool {
        self.flags & RECORDED != 0
    }

    /// The value of the header field.
    pub fn header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hexadecimal digits and dashes are a header value")
    }

    /// The id of the trace.
    pub fn trace(self) -> [u8; 16] {
        self.trace
    }

    /// The id of the span.
    pub fn span(self) -> [u8; 8] {
        self.span
    }

    /// The form in which it is stored. This is part of the data format.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.trace);
        bytes[16..24].copy_from_slice(&self.span);
        bytes[24] = self.flags;
        bytes
    }

    /// Reads what [`TraceContext::to_bytes`] has made; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace, rest) = bytes.split_first_chunk()?;
        let (span, flags) = rest.split_first_chunk()?;
        match flags {
            [flags] if flags & !(SAMPLED | RANDOM | RECORDED) == 0 => Self::valid(*trace, *span, *flags),
            _ => None,
        }
    }

    fn valid(trace: [u8; 16], span: [u8; 8], flags: u8) -> Option<Self> {
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span, flags })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace), u64::from_be_bytes(self.span));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", self.flags & (SAMPLED | RANDOM))
    }
}

/// At most 32 hexadecimal digits, in lower case only (3.2.2).
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |value: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

fn new_span() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(value: &str) -> Option<String> {
        TraceContext::parse(value.as_bytes()).map(|context| context.to_string())
    }

    #[test]
    fn a_context_is_read_and_only_known_flags_are_kept() {
        assert_eq!(parse(VALUE).as_deref(), Some(VALUE));
        assert!(TraceContext::parse(VALUE.as_bytes()).unwrap().is_sampled());
        for (written, kept) in [("00", "00"), ("02", "02"), ("03", "03"), ("ff", "03"), ("fc", "00")] {
            let kept = VALUE.replace("-01", &format!("-{kept}"));
            assert_eq!(parse(&VALUE.replace("-01", &format!("-{written}"))), Some(kept), "{written}");
        }
    }

    #[test]
    fn of_later_versions_the_beginning_counts() {
        for later in ["01", "cc", "fe"] {
            let later = VALUE.replacen("00", later, 1);
            assert_eq!(parse(&later).as_deref(), Some(VALUE));
            assert_eq!(parse(&format!("{later}-what-the-future-will-be-like")).as_deref(), Some(VALUE));
            assert_eq!(parse(&format!("{later}.what-the-future-will-be-like")), None);
            let random = later.replace("-01", "-03");
            assert_eq!(parse(&random).as_deref(), Some(VALUE), "what else a flag means there is not known");
        }
    }

    #[test]
    fn whatever_is_not_valid_is_none() {
        for wrong in [
            "",
            "00",
            &VALUE[..54],
            &format!("{VALUE}-"),
            &format!("{VALUE}0"),
            &format!(" {VALUE}"),
            &VALUE.replacen("00", "ff", 1),
            &VALUE.replacen("00", "0g", 1),
            &VALUE.replace("4bf", "4BF"),
            &VALUE.replace("aa0", "AA0"),
            &VALUE.replace("-01", "-0A"),
            &VALUE.replace("-01", "_01"),
            &VALUE.replace("-00f", "_00f"),
            &VALUE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALUE.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALUE.replace("4bf9", "+bf9"),
            &VALUE.replace("4bf9", "\u{e9}f9"),
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn several_fields_are_none() {
        let of = |count| {
            let mut headers = HeaderMap::new();
            for _ in 0..count {
                headers.append(TRACEPARENT, HeaderValue::from_static(VALUE));
            }
            TraceContext::of(&headers)
        };
        assert_eq!(of(0), None);
        assert!(of(1).is_some());
        assert_eq!(of(2), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_what_is_stored_comes_back(
            trace in 1_u128.., span in 1_u64.., flags in 0_u8..4,
        ) {
            let context =
                TraceContext { trace: trace.to_be_bytes(), span: span.to_be_bytes(), flags };
            prop_assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
            for context in [context, context.recorded()] {
                prop_assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context));
                prop_assert!(context.child().is_recorded() == context.is_recorded());
            }
            prop_assert_eq!(context.recorded().header(), context.header(), "whether it is recorded is nobody else's affair");
            prop_assert_eq!(context.header().as_bytes().len(), LENGTH);
            let child = context.child();
            prop_assert_eq!((child.trace, child.flags), (context.trace, context.flags));
            prop_assert_ne!(child.span, context.span);
        }

        #[test]
        fn any_bytes_are_one_context_or_none(value in any::<Vec<u8>>(), begun in any::<bool>()) {
            let value = if begun { [VALUE.as_bytes(), &value].concat() } else { value };
            if let Some(context) = TraceContext::parse(&value) {
                prop_assert!(!context.is_recorded());
                prop_assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
            }
            if let Some(context) = TraceContext::from_bytes(&value) {
                prop_assert_eq!(&context.to_bytes()[..], &value[..]);
            }
        }

        #[test]
        fn one_changed_character_is_another_context_or_none(at in 0..LENGTH, byte in any::<u8>()) {
            let mut value = VALUE.as_bytes().to_vec();
            prop_assume!(value[at] != byte);
            value[at] = byte;
            if let Some(context) = TraceContext::parse(&value) {
                // Another version, or only unknown flags differ.
                let may_be_same = !(2..53).contains(&at);
                prop_assert!(may_be_same || context.to_string() != VALUE, "{}", context);
            }
        }
    }

    #[test]
    fn new_traces_are_all_different_and_valid() {
        let begun: Vec<_> = (0..100).map(|_| TraceContext::begin()).collect();
        for (number, context) in begun.iter().enumerate() {
            assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(*context));
            assert!(begun[..number].iter().all(|other| other.trace != context.trace));
        }
    }
}
