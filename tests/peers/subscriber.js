// A subscriber of strangers: the npm package pubsubhubbub, which answers the verification and checks signatures by itself.
// It emits "feed" only for content whose signature fits. Arguments: topic, hub, port, secret.
'use strict';

const { createServer } = require('pubsubhubbub');

const [topic, hub, port, secret] = process.argv.slice(2);
const subscriber = createServer({ callbackUrl: `http://127.0.0.1:${port}/callback`, secret });

subscriber.on('listen', () => {
    subscriber.subscribe(topic, hub, error => console.log(error ? `refused: ${error.message}` : 'asked'));
});
subscriber.on('subscribe', ({ topic }) => console.log(`subscribed: ${topic}`));
subscriber.on('unsubscribe', ({ topic }) => console.log(`unsubscribed: ${topic}`));
subscriber.on('denied', ({ topic }) => console.log(`denied: ${topic}`));
subscriber.on('error', error => console.log(`error: ${error.message}`));
subscriber.on('feed', ({ topic, feed, headers }) => {
    console.log(`content: ${topic} ${feed.toString('base64')} ${headers['content-type']}`);
});
process.on('SIGUSR2', () => subscriber.unsubscribe(topic, hub));
subscriber.listen(Number(port), '127.0.0.1');
