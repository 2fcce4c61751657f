//! What is between a client and its app alone, in either version of HTTP on either side: the nodes leave it as it is.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::support::http::{Body, Method, request};
use crate::support::places::Places;
use crate::support::spoken::{Connection, Speaker, Spoken, values, whole};

/// Fields that name a request or weigh it, with values as their specifications have them and as they do not.
const FIELDS: [(&str, &[&[u8]]); 5] = [
    ("traceparent", &[b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", b"cc-none of this is-valid-and,more"]),
    ("tracestate", &[b"rojo=00f067aa0ba902b7 ,\tcongo=t61rcWkgMzE,,", b"", b"v@t=\xc3\xa9\xff\x80", b"a=1"]),
    ("priority", &[b"u=1 , i;x=\"y,z\"", b"i=?0", b"u=9"]),
    ("x-request-id", &[b"two  words; \"quoted\" \\ \xc3\xa9", b"6f1c"]),
    ("traceresponse", &[b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]),
];

fn add_all(headers: &mut HeaderMap) {
    for (name, value) in FIELDS.iter().flat_map(|(name, all)| all.iter().map(move |value| (*name, *value))) {
        headers.append(name, HeaderValue::from_bytes(value).expect("a value that may be sent"));
    }
}

#[tokio::test]
async fn names_traces_and_priorities_pass_byte_for_byte_both_ways() {
    for of_app in Spoken::BOTH {
        let seen = Arc::<Mutex<Vec<HeaderMap>>>::default();
        let seen_by_app = Arc::clone(&seen);
        let app = Speaker::start(of_app, move |request: Request<Incoming>| {
            seen_by_app.lock().expect("no panic under this lock").push(request.headers().clone());
            async move {
                // So that connections are used again, whatever is sent.
                drop(request.into_body().collect().await);
                let mut answer = Response::new(whole("done"));
                add_all(answer.headers_mut());
                answer
            }
        })
        .await;
        let places = Places::with(&app.url, |manage| manage).await;
        for place in places.each() {
            for of_client in Spoken::BOTH {
                let mut client = Connection::open(&place, of_client).await;
                // Nodes send what has a body another way than what has none.
                for (method, body) in [(Method::GET, ""), (Method::POST, "an order")] {
                    let mut asked: Request<Body> = request(method, "/", body);
                    add_all(asked.headers_mut());
                    let answer = client.send(asked).await;
                    let seen = seen.lock().expect("no panic under this lock").pop().expect("a request that the app has seen");
                    for (name, wanted) in FIELDS {
                        assert_eq!(values(&seen, name), wanted, "{name} by {of_client:?} at {place} to an app by {of_app:?}");
                        assert_eq!(values(&answer.headers, name), wanted, "{name} of an answer by {of_app:?} to {of_client:?} at {place}");
                    }
                }
            }
        }
    }
}
