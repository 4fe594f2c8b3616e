//! Enums whose values are words, on the command line and in rows.

/// Declares an enum with the word of each value: as it is parsed, displayed and kept in rows.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$of:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $word)] $value,)+
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$value),)+
                    _ => Err(format!("{text}: expected {}", [$($word),+].join(" or "))),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $($name::$value => $word,)+
                })
            }
        }
    };
}

pub(crate) use words;
