// A hub of strangers: the npm package @dwk/websub, which is made for Cloudflare's Workers. Of their platform it gets a database (the
// package sql.js) and a queue that live in this process; all else is its own. It fetches a topic when it is told that there is something
// new; a GET tells who is subscribed. Arguments: port, topic, the callback's host, signature algorithm.
'use strict';

const { createServer } = require('node:http');
const { join } = require('node:path');
const { Readable } = require('node:stream');
const openSqlite = require('sql.js');

// What the platform has, and older versions of Node do not show.
globalThis.crypto ??= require('node:crypto').webcrypto;

const [port, topic, callbackHost, signatureAlgorithm] = process.argv.slice(2);

// As much of D1 as the hub uses.
function prepared(sqlite, text, values = []) {
    const all = async () => {
        const statement = sqlite.prepare(text);
        try {
            statement.bind(values);
            const results = [];
            while (statement.step()) results.push(statement.getAsObject());
            return { results, meta: { changes: sqlite.getRowsModified() } };
        } finally {
            statement.free();
        }
    };
    return { bind: (...values) => prepared(sqlite, text, values), all, run: all };
}

async function main() {
    const { Database } = await openSqlite();
    const sqlite = new Database();
    // It is no CommonJS, for which NODE_PATH would be enough.
    const websub = await import(join(process.env.NODE_PATH, '@dwk/websub/dist/index.js'));
    const base = `http://127.0.0.1:${port}`;
    const config = {
        baseUrl: base,
        hubUrl: `${base}/hub`,
        allowedTopics: [topic],
        minLeaseSeconds: 1,
        signatureAlgorithm,
        fetchAllowedHosts: [new URL(topic).host, callbackHost],
    };
    const [hub, consume] = [websub.createWebSub(config), websub.createWebSubQueueConsumer(config)];
    const deal = (body, attempts = 1) => setImmediate(() => {
        const retry = ({ delaySeconds }) => setTimeout(deal, delaySeconds * 1000, body, attempts + 1);
        consume({ messages: [{ body, attempts, ack() {}, retry }] }, env, {});
    });
    const env = {
        WEBSUB_DB: { prepare: text => prepared(sqlite, text) },
        WEBSUB_QUEUE: {
            send: async body => deal(body),
            sendBatch: async messages => messages.forEach(({ body }) => deal(body)),
        },
    };
    const store = websub.createD1SubscriptionStore(env.WEBSUB_DB);

    const answer = async ({ method, url, headers, stream }) => {
        if (method === 'GET') return Response.json(await store.listActive(topic, Date.now()));
        const body = Readable.toWeb(stream);
        return hub(new Request(base + url, { method, headers, body, duplex: 'half' }), env, {});
    };
    const server = createServer(async (incoming, outgoing) => {
        const { method, url, headers } = incoming;
        const response = await answer({ method, url, headers, stream: incoming });
        const body = Buffer.from(await response.arrayBuffer());
        outgoing.writeHead(response.status, { ...Object.fromEntries(response.headers), 'content-length': body.length });
        outgoing.end(body);
    });
    server.listen(Number(port), '127.0.0.1', () => console.log('ready'));
}

main();
