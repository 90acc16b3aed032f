//! What a ResourceSync Destination needs: find a Source, subscribe to its notifications, and keep a copy in
//! step.
//!
//! | room | what is in it |
//! |---|---|
//! | [`discover`] | from any URL of a Source to its sets, lists and channels |
//! | [`subscription`] | where a subscription stands |
//! | [`subscriber`] | asking hubs, renewing leases, unsubscribing |
//! | [`topic`] | staying subscribed to a topic wherever it moves |
//! | [`callback`] | the handler that a hub talks to, for axum and hyper |
//! | [`inbox`] | notifications handed over once, and what is guaranteed about them |
//! | [`notification`] | what a Framework Notification means for a copy |
//! | [`sync`] | a directory brought in step with a Source's lists, and audited |
//! | [`listen`] | all of it together: a copy that stays in step by itself |
//! | [`relay`] | notifications of any WebSub topics, handed to a command |
//! | [`service`] | how hubs reach a Destination that listens or hands on |
//! | [`hook`] | a command of the user's own |
//! | [`state`] | what is remembered between runs |
//! | [`fetch`] | the HTTP client and its bounds |
//!
//! # A callback in an application of your own
//!
//! ```
//! use resync_subscriber_kit::callback::{Callback, CallbackOptions};
//! use resync_subscriber_kit::fetch::{Client, ClientOptions};
//! use resync_subscriber_kit::state::Subscriptions;
//! use resync_subscriber_kit::subscriber::{Subscriber, SubscriberOptions};
//! use resync_subscriber_kit::topic::keep_topic;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let state = tempfile::tempdir()?;
//! # let state_folder = state.path();
//! let subscriptions = Subscriptions::open(state_folder)?;
//! let (callback, mut deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
//!
//! // One line mounts it: every subscription gets its own unguessable path below.
//! let app: axum::Router = axum::Router::new().nest_service("/resync", callback);
//!
//! tokio::spawn(async move {
//!     while let Some(delivery) = deliveries.next().await {
//!         // Its signature is checked, and it was not here before.
//!         println!("{} bytes about {}", delivery.body.body().len(), delivery.topic.as_str());
//!         if let Err(error) = delivery.done().await {
//!             eprintln!("{error}");
//!         }
//!     }
//! });
//!
//! // Once the application is served under https://me.example/, subscribe and stay subscribed: at whichever hub serves, where
//! // the topic moves too, and after a denial. Each lease and each failure is an event.
//! let client = Client::new(ClientOptions::default())?;
//! let options = SubscriberOptions::new("https://me.example/resync".parse()?);
//! let subscriber = Subscriber::new(client.clone(), subscriptions.clone(), options);
//! # let _ = app;
//! # if false {
//! let topic = "https://source.example/topic";
//! keep_topic(&client, &subscriber, &subscriptions, topic, |event| println!("{event}")).await;
//! # }
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

pub mod callback;
mod channel;
pub mod discover;
pub mod fetch;
pub mod hook;
mod hook_queue;
pub mod inbox;
mod incoming_bytes;
pub mod listen;
pub mod notification;
mod pause;
pub mod relay;
pub mod service;
mod space;
pub mod state;
pub mod subscriber;
pub mod subscription;
pub mod sync;
pub mod topic;

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
