//! Names, lifetimes and identities.

use rcgen::{CertificateParams, KeyPair};

use super::authority::*;
use super::*;

#[test]
fn names_that_are_no_names_are_refused() {
    for bad in ["", ".x", "-x", "a/b", "a b", "ü", &"x".repeat(65)] {
        assert!(check_name(bad).is_err(), "{bad}");
    }
    for good in ["a", "Alice.b-c_d", "0", &"x".repeat(64)] {
        assert!(check_name(good).is_ok(), "{good}");
    }
}

#[test]
fn what_was_made_before_there_were_lifetimes_has_none() {
    let stored =
        r#"{"name": "a", "uid": 1, "gids": [1], "serials": [[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]]}"#;
    let mut user: User = serde_json::from_str(stored).unwrap();
    assert_eq!(user.end_of(&[1; 16]), None);
    user.ends.push(([2; 16], 100));
    user.serials.push([2; 16]);
    user.forget_ended(100);
    assert_eq!(user.serials.len(), 2);
    user.forget_ended(101);
    assert_eq!((user.serials, user.ends), (vec![[1; 16]], Vec::new()));
    let key = KeyPair::generate().unwrap();
    let endless = CertificateParams::default().self_signed(&key).unwrap();
    assert_eq!(end_of(endless.der()), None);
    let lifetime = |end| Lifetime {
        of: "it".into(),
        end,
        replaced: false,
    };
    assert!(!lifetime(None).is_due());
    assert!(!lifetime(Some(now() + 90 * DAY.as_secs())).is_due());
    assert!(lifetime(Some(now() + 10 * DAY.as_secs())).is_due());
}

#[test]
fn an_identity_reads_back_as_written_and_its_certificate_is_known_by_its_serial() {
    let stored = Authority::make("here").unwrap();
    let authority = Authority {
        signer: Signer::of(&stored.certificate, &stored.key).unwrap(),
        previous: None,
        server_name: "here".into(),
    };
    let issue = |lifetime| {
        authority
            .signer
            .issue(
                "alice",
                Vec::new(),
                ExtendedKeyUsagePurpose::ClientAuth,
                lifetime,
            )
            .unwrap()
    };
    let Issued {
        certificate,
        key,
        serial,
        end,
    } = issue(USER_LIFETIME);
    assert_eq!(end_of(&certificate), Some(end));
    assert!(end.abs_diff(now() + USER_LIFETIME.as_secs()) < 600);
    // Nothing outlives what vouches for it.
    let last = authority.end().unwrap();
    assert_eq!(issue(2 * AUTHORITY_LIFETIME).end, last);
    assert_eq!(serial_of(&certificate), Some(serial));
    assert_eq!(serial_of(&authority.signer.certificate), None);
    let identity = Identity::new(
        certificate,
        PrivatePkcs8KeyDer::from(key.to_vec()),
        authority.certificates(),
        "here".into(),
    );
    let text = identity.to_text("alice");
    let read = Identity::parse(text.as_bytes()).unwrap();
    assert_eq!(read.to_text("alice"), text);
    read.client_config().unwrap();
    authority.server_config().unwrap();
    for cut in [0, 40, text.len() / 3, text.len() / 2] {
        assert!(Identity::parse(&text.as_bytes()[..cut]).is_err());
    }
    assert!(!format!("{identity:?}").contains("PRIVATE"));
}
