//! `serve`, `check` and `status`: what a site shows to others and to its operator.

use std::{io, net::SocketAddr};

use resync_common::{
    file_limit,
    output::{answer, note, say, takes_colour, warn},
    signals,
};
use resync_publisher::{BaseUrl, check, serve, status as status_of};
use serde_json::json;
use url::{Host, Url};

use super::{
    Failure,
    arguments::{CheckArgs, ServeArgs, StatusArgs},
    failed_set,
    findings::Text,
    print_json,
    progress::Bar,
    sets::{self, print_failure},
    text,
};

pub(super) async fn serve(arguments: ServeArgs) -> Result<(), Failure> {
    let out = arguments.out.out()?;
    let outs = arguments.out.outs()?;
    let (built, failed) = sets::each(&outs, status_of);
    if built.is_empty() {
        return sets::outcome(failed, outs.len(), "cannot be read");
    }
    for (name, failure) in &failed {
        print_failure(name.as_deref(), failure);
    }
    // A connection takes a file descriptor, and the file that it is sent another one.
    if let Err(error) = file_limit::raise() {
        tracing::debug!(%error, "limit of open files not raised");
    }
    let stop = signals::stop()?;
    let listener = tokio::net::TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| Failure::Listen(arguments.listen, error))?;
    let address = listener.local_addr()?;
    for base_url in built.iter().map(|set| &set.base_url).filter(|base_url| is_elsewhere(base_url, address)) {
        warn(format_args!(
            "the documents name {base_url}, and this listens on {address}; listen there, or build with a base URL of this address"
        ));
    }
    let mut documents = built.iter().flat_map(|set| &set.documents);
    let start = documents.find(|document| document.capability == "description").map(|start| &start.url);
    if arguments.out.json {
        let sets: Vec<_> =
            built.iter().map(|set| json!({"directory": set.directory, "base_url": set.base_url})).collect();
        let listening = format!("http://{address}");
        print_json(&json!({"listening": listening, "serving": sets, "source_description": start}))?;
    } else {
        let sets: Vec<_> = built.iter().map(|set| format!("{} as {}", set.directory, set.base_url)).collect();
        say(format_args!("listening on http://{address}, serving {}", sets.join(", ")));
        if let Some(start) = start {
            say(format_args!("Source Description: {start}"));
        }
    }
    Ok(serve::serve(listener, out, stop).await?)
}

/// Whether a base URL is of this machine and of another port. Any other may lead here through a proxy.
fn is_elsewhere(base_url: &str, address: SocketAddr) -> bool {
    let of_this_machine = |url: &Url| match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    let url = Url::parse(base_url).ok().filter(of_this_machine);
    url.is_some_and(|url| url.port_or_known_default() != Some(address.port()))
}

pub(super) async fn check(arguments: &CheckArgs) -> Result<(), Failure> {
    let targets = arguments.targets()?;
    let targets = targets.iter().map(|target| check::Target::parse(target)).collect::<Result<Vec<_>, _>>()?;
    let options = check::Options {
        base_url: arguments.base_url.as_deref().map(BaseUrl::parse).transpose()?,
        deadline: arguments.deadline,
        requests: arguments.max_requests,
        documents: arguments.max_documents,
        packages: arguments.packages.as_u64(),
    };
    let bar = Bar::new();
    let checking = check::check(&targets, &options, move |progress| bar.show_check(progress)).await;
    let findings = checking?;
    for check::Page { url, source_description } in &findings.pages {
        note(format_args!(
            "{url} is no ResourceSync document; its site is checked from {source_description} on"
        ));
    }
    if arguments.out.json {
        print_json(&findings)?;
    } else {
        say(Text::new(&findings, takes_colour(&io::stdout())));
    }
    match &findings.ended_early {
        Some(reason) => Err(Failure::EndedEarly(reason.clone())),
        None if findings.conforming => Ok(()),
        None if findings.is_unread() => Err(Failure::Unread),
        None => Err(Failure::Rules),
    }
}

pub(super) fn status(arguments: &StatusArgs) -> Result<(), Failure> {
    let outs = arguments.out.outs()?;
    let (built, failed) = sets::each(&outs, status_of);
    if arguments.out.json {
        let failed = failed.iter().map(|(name, failure)| failed_set(name.as_deref(), failure));
        match built.as_slice() {
            [only] if outs.len() == 1 => print_json(only)?,
            [] if outs.len() == 1 => {}
            sets => print_json(&sets.iter().map(|set| json!(set)).chain(failed).collect::<Vec<_>>())?,
        }
    } else if !built.is_empty() {
        let hints = arguments.out.hints();
        let texts: Vec<_> = built.iter().map(|status| text::status(status, &hints)).collect();
        answer(texts.join("\n\n"));
    }
    sets::outcome(failed, outs.len(), "cannot be read")
}
