//! `kubectl set image`

use api::json::go_quote;

use super::{SetRun, pod_spec_mut, split_pairs, visit_containers};
use crate::{
    errors::{CommandError, CommandResult},
    session::Session,
};

/// Sets images of containers.
pub fn run(session: &Session) -> CommandResult {
    let run = SetRun::new(session, "image updated", "failed to patch image update to pod template: ")?;
    let (resources, pairs) = split_pairs(session.arguments(), "image")?;
    let infos = run.load(&resources)?;
    let images: Vec<(String, String)> = pairs
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, image)| (name.to_owned(), image.to_owned()))
        .collect();
    let mut errors = Vec::new();
    if session.flags.bool("all") && !session.flags.string("selector").is_empty() {
        errors.push(CommandError::new("cannot set --all and --selector at the same time"));
    }
    if images.is_empty() {
        errors.push(CommandError::new("at least one image update is required"));
    } else if images.len() > 1 && images.iter().any(|(name, _)| name == "*") {
        errors.push(CommandError::new(
            "all containers are already specified by *, but saw more than one container_name=container_image pairs",
        ));
    }
    CommandError::join(errors)?;
    run.change(infos, &mut |object, errors| {
        let spec = pod_spec_mut(object)?;
        for (name, image) in &images {
            let found = visit_containers(spec, if name == "*" { "*" } else { name }, &mut |container| {
                container["image"] = image.clone().into();
            });
            if !found {
                errors.push(CommandError::new(format!("error: unable to find container named {}", go_quote(name))));
            }
        }
        Ok(true)
    })
}
