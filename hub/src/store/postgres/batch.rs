//! Posts that are appended by one statement, as its arrays.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio_postgres::types::ToSql;

use super::notification::head_of;
use super::rows::{big, exactly, micros, random_id, topic_key};
use crate::store::encoding::key;
use crate::store::encoding::layout::{Body, LogRecord};
use crate::store::{ContentKind, NewNotification, Payer, TopicId};

/// A notification that is to be appended, with what can be made of it without knowing its place.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) new: NewNotification,
    /// By what its topic is found.
    pub(super) key: Vec<u8>,
    /// What the publisher calls it.
    pub(super) name: Option<Name>,
    pub(super) weight: u64,
    head: Vec<u8>,
}

/// What tells the repetition of a post from another post under the same key.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) hash: Vec<u8>,
    digest: Vec<u8>,
    remember: Duration,
}

impl Post {
    pub(super) fn new(new: NewNotification, remember: Duration) -> Self {
        let head = head_of(LogRecord {
            kind: new.kind,
            received_at: new.received_at,
            content_type: new.content_type.clone(),
            links: new.links.clone(),
            body: Body::Here(Bytes::new()),
            trace: new.trace,
        });
        let name = new.idempotency_key.as_ref().map(|name| Name {
            // As in an embedded store, behind the topic.
            hash: key::idempotency(TopicId(0), name).split_off(size_of::<u64>()),
            digest: Sha256::digest(&new.body).to_vec(),
            remember,
        });
        Self { key: topic_key(&new.topic), name, weight: new.weight(), head, new }
    }
}

/// The arrays of a batch, which last as long as its posts.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    /// What the batch is called, by which it is found where its answer was lost.
    pub(super) id: i64,
    topics: Topics<'a>,
    posts: Posts<'a>,
    named: Named<'a>,
    dated: Dated,
    validated: Validated<'a>,
}

#[derive(Debug, Default)]
struct Topics<'a> {
    places: HashMap<&'a [u8], i32>,
    keys: Vec<&'a [u8]>,
    sorts: Vec<&'a str>,
    urls: Vec<&'a str>,
    candidates: Vec<i64>,
    /// How many posts each has.
    counts: Vec<i32>,
}

#[derive(Debug, Default)]
struct Posts<'a> {
    of: Vec<i32>,
    ranks: Vec<i32>,
    received: Vec<SystemTime>,
    weights: Vec<i64>,
    fetched: Vec<bool>,
    publishers: Vec<bool>,
    networks: Vec<Option<IpAddr>>,
    heads: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
}

#[derive(Debug, Default)]
struct Named<'a> {
    posts: Vec<i32>,
    names: Vec<&'a [u8]>,
    digests: Vec<&'a [u8]>,
    remember: Vec<i64>,
}

#[derive(Debug, Default)]
struct Dated {
    posts: Vec<i32>,
    from: Vec<Vec<u8>>,
    until: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Validated<'a> {
    posts: Vec<i32>,
    urls: Vec<&'a str>,
    etags: Vec<Option<&'a [u8]>>,
    last_modified: Vec<Option<&'a [u8]>>,
    digests: Vec<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// No two of these posts may be of the same name on the same topic.
    pub(super) fn of(posts: impl Iterator<Item = &'a Post>) -> Self {
        let mut batch = Self { id: random_id(), ..Self::default() };
        for (number, post) in (1..).zip(posts) {
            batch.add(number, post);
        }
        batch
    }

    fn add(&mut self, number: i32, post: &'a Post) {
        let (of, rank) = self.topics.place(post);
        let new = &post.new;
        let posts = &mut self.posts;
        posts.of.push(of);
        posts.ranks.push(rank);
        posts.received.push(new.received_at.to_system_time());
        posts.weights.push(big(post.weight));
        posts.fetched.push(new.kind == ContentKind::Fetched);
        posts.publishers.push(new.payer == Payer::Publishers);
        posts.networks.push(match new.payer {
            Payer::Publishers => None,
            Payer::Strangers(network) => network,
        });
        posts.heads.push(&post.head);
        posts.bodies.push(&new.body);
        if let Some(name) = &post.name {
            self.named.posts.push(number);
            self.named.names.push(&name.hash);
            self.named.digests.push(&name.digest);
            self.named.remember.push(micros(name.remember));
        }
        if let Some(interval) = new.interval {
            self.dated.posts.push(number);
            self.dated.from.push(exactly(interval.from));
            self.dated.until.push(exactly(interval.until));
        }
        if let Some(validators) = &new.validators {
            self.validated.posts.push(number);
            self.validated.urls.push(&validators.url);
            self.validated.etags.push(validators.etag.as_deref());
            self.validated.last_modified.push(validators.last_modified.as_deref());
            self.validated.digests.push(&validators.digest);
        }
    }

    /// What all of it weighs.
    pub(super) fn bytes(&self) -> u64 {
        self.posts.weights.iter().fold(0_u64, |bytes, weight| bytes.saturating_add(weight.unsigned_abs()))
    }

    /// For each post, which of the topics in the answer it is of, from 0.
    pub(super) fn topics_of_posts(&self) -> impl Iterator<Item = usize> {
        self.posts.of.iter().map(|of| usize::try_from(of - 1).unwrap_or_default())
    }

    #[cfg(test)]
    pub(super) fn ranks(&self) -> &[i32] {
        &self.posts.ranks
    }

    /// The parameters of the function, behind the node.
    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let Self { id, topics, posts, named, dated, validated } = self;
        vec![
            id,
            &topics.keys,
            &topics.sorts,
            &topics.urls,
            &topics.candidates,
            &posts.of,
            &posts.ranks,
            &posts.received,
            &posts.weights,
            &posts.fetched,
            &posts.publishers,
            &posts.networks,
            &posts.heads,
            &posts.bodies,
            &named.posts,
            &named.names,
            &named.digests,
            &named.remember,
            &dated.posts,
            &dated.from,
            &dated.until,
            &validated.posts,
            &validated.urls,
            &validated.etags,
            &validated.last_modified,
            &validated.digests,
        ]
    }
}

impl<'a> Topics<'a> {
    /// Which of the batch's topics the post is of, and which of that topic's posts it is.
    fn place(&mut self, post: &'a Post) -> (i32, i32) {
        let next = i32::try_from(self.keys.len() + 1).unwrap_or(i32::MAX);
        let of = *self.places.entry(&post.key).or_insert(next);
        if of == next {
            let topic = &post.new.topic;
            self.keys.push(&post.key);
            self.sorts.push(topic.key());
            self.urls.push(topic.as_str());
            self.candidates.push(random_id());
            self.counts.push(0);
        }
        let index = usize::try_from(of - 1).unwrap_or_default();
        let count = &mut self.counts[index];
        *count += 1;
        (of, *count)
    }
}
