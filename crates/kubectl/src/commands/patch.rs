//! `kubectl patch`

use api::{Value, json::go_quote};

use crate::{
    errors::{CommandError, CommandResult},
    files, outln,
    printers::ObjectPrinter,
    resource::{DryRun, PatchKind, RequestOptions, ResourceBuilder, ResourceInfo},
    session::Session,
};

/// Patches objects.
pub fn run(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let dry_run = DryRun::from_flags(flags)?;
    let (patch, file, local) = (flags.string("patch"), flags.string("patch-file"), flags.bool("local"));
    let kind_name = flags.string("type").to_lowercase();
    let mut builder = ResourceBuilder::from_session(session)?;
    builder.arguments = session.arguments().to_vec();
    if !patch.is_empty() && !file.is_empty() {
        crate::bail!("cannot specify --patch and --patch-file together");
    }
    if patch.is_empty() && file.is_empty() {
        crate::bail!("must specify --patch or --patch-file containing the contents of the patch");
    }
    if local && !session.arguments().is_empty() {
        crate::bail!("cannot specify --local and server resources");
    }
    if local && dry_run == DryRun::Server {
        crate::bail!("cannot specify --local and --dry-run=server - did you mean --dry-run=client?");
    }
    let kind = match kind_name.as_str() {
        "json" => PatchKind::Json,
        "merge" => PatchKind::Merge,
        "strategic" => PatchKind::Strategic,
        _ => crate::bail!("--type must be one of [json merge strategic], not {}", go_quote(&flags.string("type"))),
    };
    let text = if file.is_empty() {
        patch.into_bytes()
    } else {
        files::read_file(&file).map_err(|error| CommandError::new(format!("unable to read patch file: {error}")))?
    };
    let body = to_json(&text)?;
    builder.flatten = true;
    builder.continue_on_error = true;
    builder.local = local;
    builder.skip_fetch = true;
    builder.subresource = flags.string("subresource");
    let mut printer = ObjectPrinter::from_flags(flags, "patched")?;
    let mut count = 0;
    builder.visit(session, &mut |info| {
        count += 1;
        patch_one(session, info, kind, &body, (dry_run, local), &mut printer)
    })?;
    if count == 0 {
        crate::bail!("no objects passed to patch");
    }
    Ok(())
}

/// The patch as JSON; what is not YAML either goes to the server as it is.
fn to_json(text: &[u8]) -> CommandResult<Vec<u8>> {
    let trimmed = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if matches!(trimmed, Some(b'{' | b'[')) {
        return Ok(text.to_vec());
    }
    let parsed = api::yaml::parse(text);
    let value = parsed.map_err(|error| {
        CommandError::new(format!("unable to parse {}: {error}", go_quote(&String::from_utf8_lossy(text))))
    })?;
    Ok(value.value.to_string().into_bytes())
}

fn patch_one(
    session: &Session,
    mut info: ResourceInfo,
    kind: PatchKind,
    body: &[u8],
    (dry_run, local): (DryRun, bool),
    printer: &mut ObjectPrinter,
) -> CommandResult {
    if !local && dry_run != DryRun::Client {
        if !info.source.is_empty() || info.object.is_null() {
            info.object = Value::Null;
        }
        let before = info.fetch(session.client()?).ok();
        let options = RequestOptions { dry_run, field_manager: field_manager(session), ..Default::default() };
        let sent = info.patch(session.client()?, kind, body.to_vec(), &options);
        let mut patched = sent.map_err(|error| match error.reason() {
            "UnsupportedMediaType" => CommandError::new(format!(
                "{} is not supported by {}, Kind={}: {error}",
                kind.content_type(),
                info.mapping.api_version(),
                info.mapping.kind
            )),
            _ => error,
        })?;
        if session.flags.bool("record") {
            let mut recorded = patched.clone();
            super::record::record_command(session, &mut recorded);
            let change = crate::merge_patch::diff_merge(&patched, &recorded);
            patched = info.patch(session.client()?, PatchKind::Merge, change.to_string(), &options)?;
        }
        let same = before.is_some_and(|before| before == patched);
        info.object = patched;
        let operation = if same { "patched (no change)" } else { "patched" };
        if info.object.get("kind").is_none_or(Value::is_null) {
            outln!("{} {operation}", info.object_name());
            return Ok(());
        }
        return printer.print_as(&info.object, operation);
    }
    if info.object.is_null() {
        info.load(session.client()?)?;
    }
    let patch: Value = serde_json::from_slice(body).map_err(|error| {
        CommandError::new(format!("unable to parse {}: {error}", go_quote(&String::from_utf8_lossy(body))))
    })?;
    if kind == PatchKind::Strategic && crate::merge_patch::type_of_object(&info.object).is_none() {
        let (group, version, kind) = crate::object::group_version_kind(&info.object);
        crate::bail!(
            "strategic merge patch is not supported for {group}/{version}, Kind={kind} locally, try --type merge"
        );
    }
    let patched = super::apply::apply_locally(&info.object, &super::apply::ApplyPatch { kind, patch });
    let patched =
        patched.map_err(|error| CommandError::new(error.to_string().replace("applying patch locally: ", "")))?;
    printer.print_as(&patched, if patched == info.object { "patched (no change)" } else { "patched" })
}

fn field_manager(session: &Session) -> String {
    session.flags.string("field-manager")
}
