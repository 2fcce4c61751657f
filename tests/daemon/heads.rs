//! B97: how long heads may be: by default, and as the flags say, at each of the three places, in both versions of HTTP and in both
//! directions. What another node adds tips none over.

use http::{Method, Request};

use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Played, Raw, header};
use crate::support::streams::{Streams, request};

const KIB: usize = 1024;

/// An app that sets as many cookies as the target says, and ends its connection with each answer.
async fn app() -> Played {
    Origin::bind().await.play(|mut raw: Raw| async move {
        let Some(head) = raw.next_head().await else { return };
        let target = head.split(' ').nth(1).unwrap_or_default();
        let cookies = target.trim_start_matches('/').parse::<usize>().map_or(0, |count| count);
        let cookies = (0..cookies).map(|number| format!("Set-Cookie: c{number}=v\r\n")).collect::<String>();
        // Whoever asked may have left.
        raw.try_send(format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 0\r\nConnection: close\r\n\r\n")).await.ok();
    })
}

/// Fields of a request: this many lines with `Host`, or one cookie of this many KiB.
#[derive(Clone, Copy, Debug)]
enum Fields {
    Lines(usize),
    Cookie(usize),
}

impl Fields {
    fn all(self) -> Vec<(String, String)> {
        match self {
            Self::Lines(count) => (1..count).map(|number| (format!("x-{number}"), "v".to_owned())).collect(),
            Self::Cookie(kib) => vec![("cookie".to_owned(), "c".repeat(kib * KIB))],
        }
    }

    async fn sent_to(self, place: &Place) -> u16 {
        let fields = self.all().into_iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<String>();
        let mut client = Raw::connect(place).await;
        client.send(format!("GET /0 HTTP/1.1\r\nHost: service\r\n{fields}\r\n")).await;
        status(&client.head().await)
    }

    /// The same over HTTP/2, where the host is no line.
    async fn streamed_to(self, place: &Place) -> u16 {
        let fields = self.all().into_iter();
        let asked = fields.fold(Request::builder().uri("http://service/0"), |asked, (name, value)| asked.header(name, value));
        let mut streams = Streams::connect(place).await;
        let mut stream = streams.ask(asked.body(()).expect("a request"), true).await.expect("a stream");
        stream.head().await.expect("an answer").status().as_u16()
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status in {head}"))
}

/// How many cookies come back of so many, in both versions.
async fn cookies(place: &Place, count: usize) -> [(u16, usize); 2] {
    let mut client = Raw::connect(place).await;
    client.send(format!("GET /{count} HTTP/1.1\r\nHost: service\r\n\r\n")).await;
    let head = client.head().await;
    let set = head.lines().filter(|line| header(&format!("\n{line}"), "set-cookie").is_some()).count();
    let mut streams = Streams::connect(place).await;
    let answer = streams.ask(request(Method::GET, &format!("/{count}")), true).await.expect("a stream").head().await.expect("an answer");
    [(status(&head), set), (answer.status().as_u16(), answer.headers().get_all("set-cookie").iter().count())]
}

/// Each of `fits` reaches the app, and each of `excess` gets 431; `most` cookies come back, and more are a failure of the app.
async fn hold(places: &Places, fits: &[Fields], excess: &[Fields], most: usize) {
    for place in places.each() {
        for (all, status) in [(fits, 200), (excess, 431)] {
            for fields in all {
                assert_eq!(fields.sent_to(&place).await, status, "{fields:?} at {place}");
                assert_eq!(fields.streamed_to(&place).await, status, "{fields:?} over HTTP/2 at {place}");
            }
        }
        assert_eq!(cookies(&place, most).await, [(200, most); 2], "at {place}");
        assert_eq!(cookies(&place, most + 10).await, [(502, 0); 2], "at {place}");
    }
}

#[tokio::test]
async fn heads_are_as_long_as_browsers_make_them() {
    let app = app().await;
    let places = Places::of(app.address).await;
    let fits = [Fields::Lines(99), Fields::Lines(100), Fields::Cookie(7), Fields::Cookie(15), Fields::Cookie(60)];
    hold(&places, &fits, &[Fields::Lines(102), Fields::Lines(250), Fields::Cookie(70)], 250).await;
}

#[tokio::test]
async fn heads_are_as_long_as_the_flags_say() {
    let app = app().await;
    let flags = ["--max-header-size", "200KiB", "--max-header-lines", "300"];
    let places = Places::with(&format!("http://{}", app.address), |manage| manage.with(flags)).await;
    let fits = [Fields::Lines(300), Fields::Cookie(190)];
    hold(&places, &fits, &[Fields::Lines(302), Fields::Cookie(210)], 295).await;
    let flags = ["--max-header-size", "16KiB", "--max-header-lines", "40"];
    let places = Places::with(&format!("http://{}", app.address), |manage| manage.with(flags)).await;
    let fits = [Fields::Lines(40), Fields::Cookie(14)];
    hold(&places, &fits, &[Fields::Lines(42), Fields::Lines(100), Fields::Cookie(18)], 250).await;
}
