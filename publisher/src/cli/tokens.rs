//! Which hub a token may reach that names none.

use std::collections::BTreeSet;

use resync_publisher::{HubUrl, config::Config, notify::Token, publish::configuration_of, state::State};

use super::{
    Failure,
    arguments::{BuildArgs, OutArgs},
    request::BuildRequest,
};

/// Refuses a token that names no hub if it would go to one that neither the configuration of the site nor this command names: the last build may have
/// been given another.
pub(super) fn check_for_notify(site: &OutArgs, tokens: &[Token], drops: &[HubUrl]) -> Result<(), Failure> {
    let file = match (&site.config, &site.out) {
        (None, Some(out)) => configuration_of(out)?.filter(|file| file.exists()),
        _ => Some(site.file()),
    };
    let Some(file) = file.filter(|_| tokens.iter().any(Token::is_bare)) else { return Ok(()) };
    let named: BTreeSet<_> = Config::load(&file)?.sets.into_iter().flat_map(|(_, set)| set.hubs).collect();
    let states: Vec<_> = site.outs()?.iter().filter_map(|out| State::load(out).ok()).collect();
    let mut meant: Vec<_> = states.iter().flat_map(|state| &state.settings.hubs).collect();
    if meant.is_empty() {
        meant = states.iter().flat_map(State::hubs_to_notify).collect();
    }
    match meant.into_iter().find(|hub| !named.contains(*hub) && !drops.contains(hub)) {
        Some(hub) => Err(Failure::StrangeHub { hub: hub.clone(), file }),
        None => Ok(()),
    }
}

/// Refuses a token that names no hub while `--hub` contradicts the configuration: it is likely for the hub of the configuration, and must not reach
/// another.
pub(super) fn check_for_build(
    arguments: &BuildArgs,
    build_request: &BuildRequest,
    tokens: &[Token],
) -> Result<(), Failure> {
    // With --no-hub, a run names no hub that could get it.
    let names_others = build_request.contradiction.is_some() && !arguments.hub.is_empty();
    if names_others && tokens.iter().any(Token::is_bare) {
        return Err(Failure::BareToken(arguments.out.file()));
    }
    Ok(())
}
