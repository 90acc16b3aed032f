//! Values of flags. An error says what to write instead, with an example.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;

/// A DURATION.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write a number with its unit, for example 90s, 10m, 1h or 30d".to_owned())
}

/// A DURATION, where 0 has a meaning of its own and needs no unit.
pub fn duration_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration(text) }
}

/// A SIZE.
pub fn size(text: &str) -> Result<ByteSize, String> {
    let wrong = "write a number of bytes with its unit, for example 500KB, 64MiB or 10GiB";
    text.parse().map_err(|_| wrong.to_owned())
}

/// An ADDR: an IP address and a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let port = port.unwrap_or(8080);
        let every = "0.0.0.0 listens on every interface";
        format!("write an IP address and a port, for example 127.0.0.1:{port} or [::1]:{port} ({every})")
    })
}

/// An N: a whole number that is not negative.
pub fn number<T: FromStr + TryFrom<u128>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| match text.parse::<u128>() {
        Ok(_) => "this number is too large".to_owned(),
        Err(_) => "write a whole number, for example 100".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_value_is_said_with_one_that_is_right() {
        assert!(duration("10").is_err_and(|said| said.contains("for example 90s")));
        assert!(size("much").is_err_and(|said| said.contains("for example 500KB")));
        assert!(address("localhost:8090").is_err_and(|said| said.contains("127.0.0.1:8090")));
        assert!(address("8090").is_err_and(|said| said.contains("127.0.0.1:8090")));
        assert!(number::<u64>("many").is_err_and(|said| said.contains("a whole number")));
        assert!(number::<u8>("300").is_err_and(|said| said.contains("too large")));
    }

    #[test]
    fn right_values_are_taken() {
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(size("1 MiB"), Ok(ByteSize::mib(1)));
        assert_eq!(address("[::1]:80").map(|address| address.port()), Ok(80));
        assert_eq!(number::<u16>("300"), Ok(300));
    }
}
