//! Why the addresses of a name are refused.

use std::net::IpAddr;

/// Why a name is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{name} has the address {address}, which is not a public address")]
    NotPublic { name: String, address: IpAddr },
    #[error("{name} has the addresses {public} and {private}, and the second is not a public address")]
    Mixed { name: String, public: IpAddr, private: IpAddr },
    #[error("{name} now has the address {address}, and was {before} before")]
    Rebound { name: String, address: IpAddr, before: &'static str },
}
