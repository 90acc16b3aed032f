//! Values in JSON as their text forms, for `#[serde(with)]`.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer};

/// Values as their text form.
pub(crate) mod text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        input: D,
    ) -> Result<T, D::Error> {
        String::deserialize(input)?.parse().map_err(D::Error::custom)
    }
}

/// Values that may be absent, as their text form or `null`.
pub(crate) mod text_option {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;

    #[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub(crate) fn serialize<T: Display, S: Serializer>(value: &Option<T>, out: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => out.collect_str(value),
            None => out.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(input)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Lists of values in their text form.
pub(crate) mod text_list {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;

    pub(crate) fn serialize<T: Display, S: Serializer>(values: &[T], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(values.iter().map(T::to_string))
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(input)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

/// Capabilities as their tokens.
pub(crate) mod capability_token {
    use resync_core::document::Capability;

    use super::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Capability, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(value.token())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Capability, D::Error> {
        String::deserialize(input).map(|token| Capability::from(token.as_str()))
    }
}
