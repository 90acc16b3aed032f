//! Values that are checked texts: printed, stored and parsed as such.

/// Gives a type with `parse` and `as_str` its text form everywhere.
macro_rules! text_form {
    ($type:ty: $error:ty) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($type), self.as_str())
            }
        }
        impl std::str::FromStr for $type {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                Self::parse(text)
            }
        }
        impl TryFrom<String> for $type {
            type Error = $error;
            fn try_from(text: String) -> Result<Self, $error> {
                Self::parse(&text)
            }
        }
        impl From<$type> for String {
            fn from(url: $type) -> Self {
                url.as_str().to_owned()
            }
        }
    };
}

pub(super) use text_form;
