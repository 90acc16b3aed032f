//! Re-verification of a subscription in force: the hub signs the query with that subscription's secret.
//!
//! Anybody who knows a callback can make some hub verify a subscription there. Before a callback confirms what it did not
//! just request, it must know that the query comes from the hub that holds its secret, and starts no new subscription.

use super::{Secret, Signature, SigningKey};

/// The header of a re-verification: a signature as in `X-Hub-Signature`, over the query as it is sent. The path is not
/// signed, since it may be rewritten on its way; the secret and the topic in the query say which subscription it is.
pub const X_HUB_QUERY_SIGNATURE: &str = "x-hub-query-signature";

/// Keeps signatures of bodies and of queries apart.
const PREFIX: &str = "GET hub.mode=subscribe in force\n";

/// Signs the query of a re-verification.
pub fn sign_query(key: &SigningKey, query: &str) -> Signature {
    key.sign(as_signed(query).as_bytes())
}

/// Whether this header proves that the query was signed with one of these secrets.
pub fn is_query_signed(header: &str, secrets: &[Secret], query: &str) -> bool {
    let signed = as_signed(query);
    Signature::parse(header).is_ok_and(|signature| {
        secrets.iter().any(|secret| signature.verify(secret, signed.as_bytes()).is_ok())
    })
}

fn as_signed(query: &str) -> String {
    format!("{PREFIX}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websub::SignatureMethod;

    const QUERY: &str = "hub.mode=subscribe&hub.topic=a&hub.challenge=b&hub.lease_seconds=1";

    #[test]
    fn only_who_knows_the_secret_signs_a_query_and_only_that_one() {
        let [own, next, foreign] = ["own", "next", "foreign"].map(|text| Secret::new(text).unwrap());
        let key = SigningKey::new(SignatureMethod::Sha256, &own);
        let header = sign_query(&key, QUERY).to_string();
        assert!(is_query_signed(&header, &[next.clone(), own.clone()], QUERY));
        assert!(!is_query_signed(&header, &[next, foreign], QUERY));
        assert!(!is_query_signed(&header, std::slice::from_ref(&own), &QUERY.replace("=1", "=2")));
        assert!(!is_query_signed(&key.sign(QUERY.as_bytes()).to_string(), &[own], QUERY), "that is a body's");
    }
}
