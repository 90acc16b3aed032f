//! Enums whose values stand in documents as tokens: each variant is named once, with its token.

/// A closed set: every other token is an error.
macro_rules! tokens {
    ($(#[$about:meta])* $name:ident or $error:ident { $($(#[$doc:meta])* $variant:ident = $token:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// Every value, in the order above.
            pub const ALL: [Self; [$($token),*].len()] = [$(Self::$variant),*];

            /// The text of the attribute or element.
            pub const fn token(self) -> &'static str {
                match self { $(Self::$variant => $token,)* }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::ALL.into_iter().find(|known| known.token() == text).ok_or($error)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.token())
            }
        }
    };
}

/// An open set: any other token is kept as it was written.
macro_rules! open_tokens {
    (
        $(#[$about:meta])* $name:ident, $(#[$text_doc:meta])* $text:ident
        { $($(#[$doc:meta])* $variant:ident = $token:literal;)* }
        $(#[$other:meta])* Other
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            $(#[$other])* Other(Box<str>),
        }

        impl $name {
            /// Every value that the specifications define.
            pub const DEFINED: [Self; [$($token),*].len()] = [$(Self::$variant),*];

            $(#[$text_doc])*
            pub fn $text(&self) -> &str {
                match self {
                    $(Self::$variant => $token,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                let known = Self::DEFINED.into_iter().find(|known| known.$text() == text);
                known.unwrap_or_else(|| Self::Other(text.into()))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.$text())
            }
        }
    };
}

pub(super) use {open_tokens, tokens};
