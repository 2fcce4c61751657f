//! What an error looks like: JSON for programs, a plain page for people whose browser asks for one (RFC 9110 §12.5.1).

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde::Serialize;

/// What a client would rather read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Taste {
    #[default]
    Json,
    Html,
}

impl Taste {
    /// A page for whoever names HTML and does not like JSON as much; JSON for everybody else.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if !headers.get_all(ACCEPT).iter().any(names_html) {
            return Self::Json;
        }
        let (mut html, mut json, mut anything) = (0.0, None, 0.0);
        let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let weight = weight.map_or(1.0, |weight| weight.parse::<f32>().unwrap_or(0.0));
            match kind.as_str() {
                "text/html" => html = weight,
                "application/json" => json = Some(weight),
                "*/*" | "application/*" => anything = weight.max(anything),
                _ => {}
            }
        }
        let html_wins = html > 0.0 && json.map_or(html >= anything, |json| html > json);
        if html_wins { Self::Html } else { Self::Json }
    }
}

/// Whether an `Accept` says anything of HTML at all, told at little cost.
pub(super) fn names_html(accept: &HeaderValue) -> bool {
    const HTML: &[u8] = b"text/html";
    accept.len() >= HTML.len() && accept.as_bytes().windows(HTML.len()).any(|window| window.eq_ignore_ascii_case(HTML))
}

/// What is said of an error. The Docker client prints `message` alone.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) message: &'a str,
    pub(super) reason: &'a str,
    pub(super) verdict: &'a str,
    pub(super) primary: &'a str,
    pub(super) epoch: u64,
}

impl Report<'_> {
    pub(super) fn into_response(self, status: StatusCode, taste: Taste) -> Response<Bytes> {
        let mut response = match taste {
            Taste::Json => {
                let mut json = serde_json::to_vec(&self).expect("strings and numbers are always JSON");
                json.push(b'\n');
                let mut response = Response::new(Bytes::from(json));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Taste::Html => {
                let mut response = Response::new(Bytes::from(self.to_html(status)));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
                headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"));
                response
            }
        };
        *response.status_mut() = status;
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    }

    fn to_html(&self, status: StatusCode) -> String {
        let in_words = match self.verdict {
            "not-sent" => "the app has not seen the request: it can be sent again",
            _ => "the app may have acted on the request",
        };
        let primary = if self.primary.is_empty() { "none is known" } else { self.primary };
        let [message, reason, verdict, primary] = [self.message, self.reason, self.verdict, primary].map(escaped);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{status}</title>\n\
             <style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem;color:#222;background:#fff}}\
             h1{{font-size:1.4rem}}dt{{color:#666}}dd{{margin:0 0 .5rem}}\
             @media(prefers-color-scheme:dark){{body{{color:#ddd;background:#181818}}dt{{color:#999}}}}</style>\n\
             <h1>{status}</h1>\n<p>{message}</p>\n<dl>\n\
             <dt>Reason</dt><dd>{reason}</dd>\n<dt>Verdict</dt><dd>{verdict}: {in_words}</dd>\n\
             <dt>Primary</dt><dd>{primary}</dd>\n<dt>Epoch</dt><dd>{}</dd>\n</dl>\n",
            self.epoch
        )
    }
}

/// Text as HTML shows it: parts of it may come from a request.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_for_who_asks_for_one() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, taste) in [
            (&[browser][..], Taste::Html),
            (&["TEXT/HTML"], Taste::Html),
            (&["application/json;q=0.5, text/html;q=0.6"], Taste::Html),
            (&["application/json", "text/html"], Taste::Json),
            (&["application/json, text/html;q=0.9"], Taste::Json),
            (&["text/html;q=0.1, */*"], Taste::Json),
            (&["text/html;q=0"], Taste::Json),
            (&["text/html;q=much"], Taste::Json),
            (&["text/htmlx"], Taste::Json),
            (&["*/*"], Taste::Json),
            (&[], Taste::Json),
        ] {
            let headers = accept.iter().map(|value| (ACCEPT, HeaderValue::from_static(value))).collect();
            assert_eq!(Taste::of(&headers), taste, "{accept:?}");
        }
    }

    #[test]
    fn nothing_of_a_request_becomes_markup() {
        let report = Report {
            message: "a node has no /_bellwether/<script>alert('&')</script>",
            reason: "not-found",
            verdict: "not-sent",
            primary: "",
            epoch: 7,
        };
        let page = report.into_response(StatusCode::NOT_FOUND, Taste::Html);
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        let html = std::str::from_utf8(page.body()).unwrap();
        assert!(html.contains("/_bellwether/&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"), "{html}");
        for words in ["<h1>404 Not Found</h1>", "not-found", "not-sent: the app has not seen", "none is known", "<dd>7</dd>"] {
            assert!(html.contains(words), "{words}: {html}");
        }
    }
}
