//! Any text as a signature of any body: no panic, and none verifies but the one that the secret makes.

use resync_core::websub::{Secret, Signature, SignatureMethod, SignedBody, SigningKey};

const METHODS: [SignatureMethod; 4] =
    [SignatureMethod::Sha1, SignatureMethod::Sha256, SignatureMethod::Sha384, SignatureMethod::Sha512];

/// The first line is the header, what follows is the body.
pub fn run(input: &[u8]) {
    let (line, body) = match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (input, &[][..]),
    };
    let Ok(text) = str::from_utf8(line) else { return };
    let secrets = [Secret::new("between hub and reader").expect("it is short enough")];
    let check = |header: Option<&str>| SignedBody::check(header, &secrets, body).map(SignedBody::into_body);
    let ours = METHODS.map(|method| SigningKey::new(method, &secrets[0]).sign(body));
    for signature in &ours {
        assert_eq!(check(Some(&signature.to_string())).as_deref(), Ok(body));
    }
    assert!(check(None).is_err());

    let checked = check(Some(text));
    let Ok(signature) = Signature::parse(text) else {
        assert!(checked.is_err());
        return;
    };
    assert_eq!(Signature::parse(&signature.to_string()).as_ref(), Ok(&signature));
    assert_eq!(checked.is_ok(), ours.contains(&signature));
}
