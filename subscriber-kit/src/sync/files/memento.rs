//! Fetches a past state of a resource: by one way after another that may lead to it (MEM-050), until one gives what proves to be
//! that state.

use resync_core::datetime::DateTime;
use resync_core::memento::{HttpDate, Layout};
use url::Url;

use super::download::Received;
use super::local::Facts;
use super::resource_error::ResourceError;
use crate::fetch::{Deadline, FetchError, Reply, Retries};
use crate::memento::{Claim, Form, Lifetime, MementoError, NoOffer, Offered, VersionLinks, asking};
use crate::sync::reading::lists::Lists;

/// The state of a resource that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'w> {
    /// The resource.
    pub(crate) original: &'w Url,
    /// A moment at which it was in this state.
    pub(crate) at: DateTime,
    pub(crate) lifetime: Lifetime,
    /// What the lists say of its bytes.
    pub(crate) facts: &'w Facts,
    pub(crate) links: &'w VersionLinks,
}

/// A past state of a resource: its headers were checked, and then its bytes.
pub(crate) struct Memento {
    received: Received,
    datetime: HttpDate,
}

impl Memento {
    /// Since when the resource was in this state, or when it was seen in it, as the server says.
    pub(crate) fn datetime(&self) -> HttpDate {
        self.datetime
    }

    pub(crate) fn into_received(self) -> Received {
        self.received
    }
}

/// Fetches past states of the resources of these lists.
pub(crate) struct Mementos<'s> {
    lists: &'s Lists<'s>,
    /// The TimeGate that the user gave.
    archive: Option<Archive>,
}

/// An archive that answers for any resource.
struct Archive {
    url: Url,
    layout: Layout,
}

/// A place that may give the state.
#[derive(Clone, Copy)]
struct Place<'p> {
    url: &'p Url,
    /// Whether the list names it as that of this very version.
    is_listed: bool,
}

impl<'s> Mementos<'s> {
    /// With the prefix of TimeGates, to which the URI of a resource is added.
    pub(crate) fn new(lists: &'s Lists<'s>, timegate: Option<&Url>) -> Self {
        let archive =
            timegate.map(|prefix| Archive { url: prefix.clone(), layout: Layout::new(prefix.as_str()) });
        Self { lists, archive }
    }

    /// The first that proves to be the wanted state: the list's own memento, its TimeGate, the TimeGate that the resource names, the
    /// resource itself, and the archive that was given.
    pub(crate) async fn get(&self, wanted: &Wanted<'_>) -> Result<Memento, ResourceError> {
        let mut why = None;
        let VersionLinks { memento, timegate } = wanted.links;
        for (link, is_listed) in [(memento, true), (timegate, false)] {
            let Some(url) = link.as_deref().and_then(|link| Url::parse(link).ok()) else { continue };
            match self.at(Place { url: &url, is_listed }, wanted).await {
                Err(error) if error.leaves_other_ways() => keep(&mut why, error),
                result => return result,
            }
        }
        match self.by_the_original(wanted).await {
            Ok(Some(memento)) => return Ok(memento),
            Ok(None) => {}
            Err(error) if error.leaves_other_ways() => keep(&mut why, error),
            Err(error) => return Err(error),
        }
        if let Some(Archive { layout, .. }) = &self.archive
            && let Ok(url) = Url::parse(&layout.time_gate(wanted.original.as_str()))
        {
            match self.at(Place { url: &url, is_listed: false }, wanted).await {
                Err(error) if error.leaves_other_ways() => keep(&mut why, error),
                result => return result,
            }
        }
        Err(why.unwrap_or_else(|| MementoError::NoTimeGate.into()))
    }

    /// Asks the resource itself. It may negotiate, or name its TimeGate, even if it is gone; `None` if it does neither.
    async fn by_the_original(&self, wanted: &Wanted<'_>) -> Result<Option<Memento>, ResourceError> {
        let place = Place { url: wanted.original, is_listed: false };
        let (reply, deadline) = self.answered(place, wanted, Form::Usual, &mut self.retries()).await?;
        let timegate = reply.links.first("timegate").and_then(|target| Url::parse(target).ok());
        let timegate = timegate.filter(|url| url != wanted.original);
        let itself = if reply.memento_datetime.is_some() {
            Some(self.checked(place, wanted, reply, &deadline).await)
        } else {
            // A TimeGate at the same host may need its permit.
            drop(reply);
            None
        };
        let itself = match itself {
            Some(Err(error)) if error.is_mismatch() => Some(self.tried(place, wanted, Form::Raw).await),
            itself => itself,
        };
        match (itself, timegate) {
            (Some(Ok(memento)), _) => Ok(Some(memento)),
            (Some(Err(error)), Some(url)) if error.leaves_other_ways() => {
                tracing::debug!(%error, "what a resource gave of itself is not its state of then");
                self.at(Place { url: &url, is_listed: false }, wanted).await.map(Some)
            }
            (Some(Err(error)), _) => Err(error),
            (None, Some(url)) => self.at(Place { url: &url, is_listed: false }, wanted).await.map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Asks a place, and once more for the raw bytes if they are not those that the list tells (MEM-055). Where it tells neither hash
    /// nor length, nothing would show that they were rewritten, so the raw ones are asked for at once.
    async fn at(&self, place: Place<'_>, wanted: &Wanted<'_>) -> Result<Memento, ResourceError> {
        let is_told = wanted.facts.algorithm().is_some() || wanted.facts.length.is_some();
        let form = if is_told { Form::Usual } else { Form::Raw };
        match self.tried(place, wanted, form).await {
            Err(error) if error.is_mismatch() => self.tried(place, wanted, Form::Raw).await,
            result => result,
        }
    }

    /// Retries while the server is away (MEM-057).
    async fn tried(
        &self,
        place: Place<'_>,
        wanted: &Wanted<'_>,
        form: Form,
    ) -> Result<Memento, ResourceError> {
        let mut retries = self.retries();
        loop {
            let (reply, deadline) = self.answered(place, wanted, form, &mut retries).await?;
            match self.checked(place, wanted, reply, &deadline).await {
                Err(ResourceError::Fetch(error)) => pause(&mut retries, error).await?,
                result => return result,
            }
        }
    }

    /// An answer that asking again would not change. It has to be complete at the deadline.
    async fn answered(
        &self,
        place: Place<'_>,
        wanted: &Wanted<'_>,
        form: Form,
        retries: &mut Retries,
    ) -> Result<(Reply, Deadline), ResourceError> {
        loop {
            let mut deadline = Deadline::after(self.lists.client.options().resource_timeout);
            let error = match self.ask(place, wanted, form, &mut deadline).await {
                Ok(Reply { body: Err(error), .. }) if error.is_transient() => error,
                Ok(reply) => return Ok((reply, deadline)),
                Err(ResourceError::Fetch(error)) => error,
                Err(error) => return Err(error),
            };
            pause(retries, error).await?;
        }
    }

    fn retries(&self) -> Retries {
        Retries::new(self.lists.options.retries, self.lists.options.retry_pause)
    }

    /// Of other origins only those that were named (MEM-059).
    async fn ask(
        &self,
        place: Place<'_>,
        wanted: &Wanted<'_>,
        form: Form,
        deadline: &mut Deadline,
    ) -> Result<Reply, ResourceError> {
        let Lists { client, list, options, .. } = *self.lists;
        let home = list.origin();
        let is_given =
            self.archive.as_ref().is_some_and(|archive| archive.url.origin() == place.url.origin());
        if !is_given && !options.authority.allows(place.url, &home) {
            return Err(ResourceError::OtherOrigin { list: home.ascii_serialization() });
        }
        let follow = options.authority.follow(list);
        let headers = asking(wanted.lifetime.time_to_ask(wanted.at), form);
        Ok(client.ask(place.url, follow, headers, deadline).await?)
    }

    /// Checks the headers of an answer, reads its body, and checks that.
    async fn checked(
        &self,
        place: Place<'_>,
        wanted: &Wanted<'_>,
        reply: Reply,
        deadline: &Deadline,
    ) -> Result<Memento, ResourceError> {
        let claim = Claim {
            original: wanted.original,
            lifetime: wanted.lifetime,
            has_hash: wanted.facts.algorithm().is_some(),
            is_listed: place.is_listed,
        };
        let (datetime, answer) = Offered::of(reply, &claim)?.into_parts();
        let transfer = self.lists.transfer(place.url, wanted.facts);
        let received = deadline.meet(place.url, Box::pin(transfer.receive(answer))).await??;
        // Its validators are not those of the resource.
        Ok(Memento { received: Received { sent: None, ..received }, datetime })
    }
}

/// Waits for the next try; the error if there is none.
async fn pause(retries: &mut Retries, error: FetchError) -> Result<(), ResourceError> {
    let Some(pause) = retries.after(&error) else { return Err(error.into()) };
    tracing::debug!(%error, "asking for a past state again");
    tokio::time::sleep(pause).await;
    Ok(())
}

/// The error that is told in the end: the first, but rather one that may mend.
fn keep(why: &mut Option<ResourceError>, error: ResourceError) {
    tracing::debug!(%error, "one way leads to no past state");
    let is_better = |known: &ResourceError| error.retry_may_help() && !known.retry_may_help();
    if why.as_ref().is_none_or(is_better) {
        *why = Some(error);
    }
}

impl From<NoOffer> for ResourceError {
    fn from(why: NoOffer) -> Self {
        match why {
            NoOffer::Memento(error) => error.into(),
            NoOffer::Status(error) => (*error).into(),
        }
    }
}

impl ResourceError {
    /// Whether another way may lead to a past state of the resource all the same.
    pub(super) fn leaves_other_ways(&self) -> bool {
        self.is_mismatch() || matches!(self, Self::Fetch(_) | Self::Memento(_) | Self::OtherOrigin { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_ways_the_first_is_told_unless_another_may_mend() {
        let url = Url::parse("http://a.example/").unwrap();
        let status = |status| ResourceError::from(FetchError::of_status(&url, status));
        let told = |errors: [ResourceError; 3]| {
            let mut why = None;
            for error in errors {
                keep(&mut why, error);
            }
            why.unwrap().to_string()
        };
        let unknown = || ResourceError::from(MementoError::NoTimeGate);
        assert_eq!(told([unknown(), status(403), status(400)]), unknown().to_string());
        assert_eq!(told([unknown(), status(503), status(500)]), status(503).to_string());
    }
}
