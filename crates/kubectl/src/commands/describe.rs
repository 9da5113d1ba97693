//! `kubectl describe`

use crate::{
    describe::{DescribeContext, describe_object},
    errln,
    errors::{CommandError, CommandResult},
    object::name_of,
    output::write_out,
    resource::{ResourceBuilder, ResourceInfo},
    session::Session,
};

/// Describes objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let mut builder = ResourceBuilder::from_session(session)?;
    if builder.all_namespaces {
        builder.enforce_namespace = false;
    }
    if session.arguments().is_empty() && !builder.has_files() {
        crate::bail!(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of supported resources."
        );
    }
    builder.arguments = session.arguments().to_vec();
    builder.allow_empty_selector = true;
    builder.flatten = true;
    builder.latest = true;
    builder.continue_on_error = true;
    let result = builder.build(session)?;
    // Events are for one object, unless the flag asks for them.
    let several = !result.errors.is_empty() || result.infos.len() > 1;
    let show_events = flags.bool("show-events") && (!several || flags.changed("show-events"));
    let context = DescribeContext { session, show_events };
    if result.infos.is_empty() && !result.errors.is_empty() {
        if result.errors.iter().all(CommandError::is_not_found) && session.arguments().len() == 2 {
            return describe_matching(&context, &builder, result.errors);
        }
        return Err(CommandError::Aggregate(vec![CommandError::Aggregate(result.errors)]));
    }
    let mut errors = result.errors;
    let mut first = true;
    for info in &result.infos {
        if let Err(error) = print_one(&context, info, &mut first) {
            errors.push(error);
        }
    }
    if result.infos.is_empty() && errors.is_empty() {
        if builder.all_namespaces {
            errln!("No resources found");
        } else {
            errln!("No resources found in {} namespace.", builder.namespace);
        }
    }
    CommandError::join(errors)
}

fn print_one(context: &DescribeContext, info: &ResourceInfo, first: &mut bool) -> CommandResult {
    let text = describe_object(context, info)?;
    if std::mem::take(first) {
        write_out(&text);
    } else {
        write_out(&format!("\n\n{text}"));
    }
    Ok(())
}

/// Describes the objects whose names begin with the argument.
fn describe_matching(context: &DescribeContext, builder: &ResourceBuilder, errors: Vec<CommandError>) -> CommandResult {
    let mut all = builder.clone();
    let prefix = all.arguments.pop().unwrap_or_default();
    let infos = all.build(context.session)?.infos;
    let mut found = false;
    for info in infos.iter().filter(|info| name_of(&info.object).starts_with(&prefix)) {
        found = true;
        write_out(&format!("{}\n", describe_object(context, info)?));
    }
    if found { Ok(()) } else { CommandError::join(errors) }
}
