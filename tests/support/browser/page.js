// What a page does, each thing a case; in the middle of the last ones the primary changes. In the end the app is told what came of it.
"use strict";

const PATIENCE = 60_000;
const report = [];

function within(what, promise) {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what} in time`)), PATIENCE));
    return Promise.race([promise, late]);
}

function expect(what, seen, wanted) {
    const [left, right] = [JSON.stringify(seen), JSON.stringify(wanted)];
    if (left !== right) throw new Error(`${what}: ${left} and not ${right}`);
}

async function trial(name, act) {
    try {
        const detail = await within("end", act());
        report.push({ case: name, ok: true, detail: detail ?? "" });
    } catch (error) {
        report.push({ case: name, ok: false, detail: String(error) });
    }
}

const say = (text) => fetch("/say", { method: "POST", body: text });
const turn = (how) => fetch(`/turn?${how}`, { method: "POST" });
const epochOf = (answer) => Number(answer.headers.get("epoch"));

const protocol = () => performance.getEntriesByType("resource").find((entry) => entry.name.includes("/echo?")).nextHopProtocol;

function noise(length) {
    const bytes = new Uint8Array(length);
    for (let at = 0; at < length; at += 65_536) crypto.getRandomValues(bytes.subarray(at, Math.min(at + 65_536, length)));
    return bytes;
}

async function sum(bytes) {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// What comes of something, one after the other, for whoever waits.
class Queue {
    items = [];
    waiting = [];
    put(item) {
        const taker = this.waiting.shift();
        if (taker) taker(item);
        else this.items.push(item);
    }
    take(what) {
        if (this.items.length) return Promise.resolve(this.items.shift());
        return within(what, new Promise((resolve) => this.waiting.push(resolve)));
    }
}

class Socket {
    heard = new Queue();
    constructor() {
        this.socket = new WebSocket(`${location.origin.replace("http", "ws")}/socket`, ["chat"]);
        this.socket.binaryType = "arraybuffer";
        this.socket.onmessage = ({ data }) => this.heard.put(data);
        this.closed = new Promise((resolve) => (this.socket.onclose = ({ code, reason, wasClean }) => resolve([code, reason, wasClean])));
    }
    async epoch() {
        return Number(await this.heard.take("first message"));
    }
}

class Events {
    heard = new Queue();
    constructor() {
        this.source = new EventSource("/events");
        this.source.onmessage = ({ data, lastEventId }) => this.heard.put({ id: Number(lastEventId), ...JSON.parse(data) });
    }
    async next() {
        const { id, after, epoch } = await this.heard.take("event");
        this.epoch = epoch;
        return [id, after];
    }
}

let events;

async function everything() {
    await trial("get, query as it is", async () => {
        const answer = await fetch("/echo?a=%2Fb%20c&a=&%F0%9F%90%91=..%2f&plus=a+b");
        expect("status", answer.status, 200);
        expect("method", answer.headers.get("x-method"), "GET");
        expect("query", answer.headers.get("x-query"), "a=%2Fb%20c&a=&%F0%9F%90%91=..%2f&plus=a+b");
        await answer.text();
        return protocol();
    });
    await trial("post of 5 MB and back", async () => {
        const bytes = noise(5_000_000);
        const answer = await fetch("/echo", { method: "POST", body: new Blob([bytes]) });
        expect("status", answer.status, 200);
        expect("body", await sum(await answer.arrayBuffer()), await sum(bytes));
    });
    await trial("upload in pieces", async () => {
        const pieces = [..."abcde"].map((letter) => letter.repeat(50_000));
        const left = pieces.map((piece) => new TextEncoder().encode(piece));
        const pull = (out) => (left.length ? out.enqueue(left.shift()) : out.close());
        // A body without an end in sight is sent over HTTP/2 alone.
        const body = protocol() === "h2" ? new ReadableStream({ pull }) : new Blob(pieces);
        const answer = await fetch("/echo", { method: "POST", body, duplex: "half" });
        expect("body", (await answer.text()) === pieces.join(""), true);
    });
    await trial("form with files", async () => {
        const [bytes, form] = [noise(300_000), new FormData()];
        form.append("name", "Ellen");
        form.append("file", new File([bytes], "sheep é.bin"));
        const seen = await (await fetch("/form", { method: "POST", body: form })).json();
        expect("name", seen.name.slice(0, 2), [null, 5]);
        expect("file", seen.file.slice(1), [bytes.length, await sum(bytes)]);
    });
    await trial("other methods", async () => {
        for (const method of ["PUT", "PATCH", "DELETE", "OPTIONS"]) {
            const answer = await fetch("/echo", { method, body: "x" });
            expect(method, [answer.headers.get("x-method"), await answer.text()], [method, "x"]);
        }
        const head = await fetch("/echo", { method: "HEAD" });
        expect("HEAD", [head.status, head.headers.get("x-method"), await head.text()], [200, "HEAD", ""]);
    });
    await trial("stream, piece by piece", async () => {
        const reader = (await fetch("/stream")).body.getReader();
        const pieces = [];
        for (;;) {
            const { done, value } = await within("piece", reader.read());
            if (done) break;
            pieces.push(new TextDecoder().decode(value));
            await turn("next");
        }
        expect("pieces", pieces, ["piece 0", "piece 1", "piece 2", "piece 3"]);
    });
    await trial("compressed, and in part", async () => {
        expect("whole", await (await fetch("/packed")).text(), "sheep ".repeat(1_000));
        const part = await fetch("/packed", { headers: { range: "bytes=6-10", "accept-encoding": "identity" } });
        expect("part", [part.status, part.headers.get("content-range"), await part.text()], [206, "bytes 6-10/6000", "sheep"]);
    });
    await trial("an answer that breaks off", async () => {
        for (const how of ["length", "pieces"]) {
            const answer = await fetch(`/broken?${how}`);
            expect("status", answer.status, 200);
            const told = answer.text().then(() => "whole", () => "broken");
            // Broken before its head was looked at, it would be none to the browser.
            await turn("break");
            expect(how, await told, "broken");
        }
    });
    await trial("a stream that the page leaves", async () => {
        const leaving = new AbortController();
        const answer = await fetch("/stream", { signal: leaving.signal });
        await answer.body.getReader().read();
        leaving.abort();
        expect("the next one", (await fetch("/echo")).status, 200);
    });
    await trial("events, one by one and after a break", async () => {
        events = new Events();
        expect("first", await events.next(), [1, 0]);
        await turn("next");
        expect("second", await events.next(), [2, 0]);
        await turn("end");
        expect("third, on a new connection", await events.next(), [3, 2]);
    });
    await trial("websocket, echo and close", async () => {
        const bytes = noise(200_000);
        const own = new Socket();
        await own.epoch();
        expect("protocol", own.socket.protocol, "chat");
        own.socket.send("text: ✓");
        expect("text", await own.heard.take("text"), "text: ✓");
        own.socket.send(bytes);
        expect("bytes", await sum(await own.heard.take("bytes")), await sum(bytes));
        own.socket.close(1000, "done");
        expect("the page's close", await within("close", own.closed), [1000, "done", true]);
        expect("what the app heard", await (await fetch("/closed")).text(), "1000");
        const other = new Socket();
        await other.epoch();
        other.socket.send("close");
        expect("the app's close", await within("close", other.closed), [4001, "as asked", true]);
    });
    await trial("cookies, each by itself", async () => {
        await fetch("/cookies");
        expect("what a script sees", document.cookie.split("; ").sort(), ["first=1", "second=2"]);
        const sent = await (await fetch("/crumbs")).text();
        expect("what is sent", sent.split("; ").sort(), ["first=1", "hidden=3", "second=2"]);
    });
    await trial("redirects", async () => {
        for (const [status, method, body] of [[302, "GET", ""], [303, "GET", ""], [307, "POST", "order"], [308, "POST", "order"]]) {
            const answer = await fetch(`/redirect?${status}`, { method: "POST", body: "order" });
            expect("place", [answer.redirected, answer.url], [true, `${location.origin}/echo?landed`]);
            expect(status, [answer.headers.get("x-method"), await answer.text()], [method, body]);
        }
    });
    await trial("cache, asked again", async () => {
        for (let time = 0; time < 2; time++) expect("body", await (await fetch("/cached")).text(), "worth keeping");
        expect("tags that the app was asked for", await (await fetch("/checks")).json(), ["", '"one"']);
    });
    await trial("thirty at once", async () => {
        const one = async (n) => (await fetch(`/echo?${n}`, { method: "POST", body: `body ${n}` })).text();
        const all = [...Array(30).keys()];
        expect("bodies", await Promise.all(all.map(one)), all.map((n) => `body ${n}`));
    });
    await trial("an order to the node is refused, on a page", async () => {
        const form = document.createElement("form");
        Object.assign(form, { method: "POST", action: "/_bellwether/resign", target: "frame" });
        document.body.append(form);
        const frame = document.querySelector("iframe");
        const loaded = new Promise((resolve) => (frame.onload = resolve));
        form.submit();
        await within("page", loaded);
        expect("kind", frame.contentDocument.contentType, "text/html");
        expect("title", frame.contentDocument.title, "403 Forbidden");
    });
    await handover();
}

// Requests without a pause, and long ones, through a change of primary that the test brings about when it hears that we are ready.
async function handover() {
    const socket = new Socket();
    const before = await socket.epoch();
    const [answered, begun] = [[], new Queue()];
    const going = [..."GGPP"].map(async (kind, lane) => {
        for (let n = 0, epoch = 0; epoch <= before; n++) {
            const body = kind === "P" ? `${lane}-${n}` : undefined;
            const answer = await fetch(`/echo?${lane}-${n}`, { method: body ? "POST" : "GET", body });
            expect("answer", [answer.status, await answer.text()], [200, body ?? ""]);
            epoch = epochOf(answer);
            answered.push(epoch);
            if (n === 2) begun.put(lane);
        }
    });
    await trial("requests before the change", async () => {
        for (let lane = 0; lane < going.length; lane++) await Promise.race([begun.take("answers"), Promise.all(going)]);
        expect("epochs", [...new Set(answered)], [before]);
        await say("ready");
    });
    await trial("requests during the change", async () => {
        await Promise.all(going);
        const after = Math.max(...answered);
        expect("epochs", [...new Set(answered)], [before, after]);
        return `${answered.length} answers`;
    });
    await trial("websocket over the change", async () => {
        expect("close", await within("close", socket.closed), [1012, "connect again", true]);
        const next = new Socket();
        const epoch = await next.epoch();
        expect("a later epoch", epoch > before, true);
        next.socket.send("again");
        expect("echo", await next.heard.take("text"), "again");
    });
    await trial("events over the change", async () => {
        expect("epoch", events.epoch, before);
        expect("the next one", await events.next(), [4, 3]);
        expect("a later epoch", events.epoch > before, true);
    });
}

everything().catch((error) => report.push({ case: "page", ok: false, detail: String(error) })).then(() => say(JSON.stringify(report)));
