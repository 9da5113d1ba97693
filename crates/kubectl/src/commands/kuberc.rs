//! `kubectl kuberc view` and `kuberc set`

use std::path::Path;

use api::json::go_quote;

use crate::{
    errors::{CommandError, CommandResult},
    files::os_error,
    flag_set::FlagSet,
    kuberc::{AliasOverride, AllowlistEntry, CommandDefault, OptionDefault, Preference, parse_preference, select_file},
    outln,
    output::write_out,
    printers::{ObjectPrinter, indent_json},
    session::Session,
};

/// `kuberc view`
pub fn run_view(session: &Session) -> CommandResult {
    let (file, named) = preference_file(session)?;
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            crate::bail!("error reading kuberc file: open {file}: {}", os_error(&error))
        }
        Err(_) if named => crate::bail!("kuberc file not found at {file}"),
        Err(_) => {
            outln!("kuberc file not found at {file}");
            write_out("Would you like to generate a default kuberc file with recommended options? (y/N): ");
            let mut answer = String::new();
            if std::io::stdin().read_line(&mut answer).is_err() || answer.trim().is_empty() {
                return Ok(());
            }
            if answer.trim().eq_ignore_ascii_case("y") {
                return save(&recommended(), &file);
            }
            Vec::new()
        }
    };
    let preference = parse(&bytes)?;
    let value = to_value(&preference)?;
    if session.flags.string("output") == "json" {
        // JSON has the order of the type.
        let text = serde_json::to_string(&preference).unwrap_or_else(|_| value.to_string());
        outln!("{}", indent_json(&api::json::escape_html(text), "    "));
        return Ok(());
    }
    ObjectPrinter::from_flags(&session.flags, "")?.print(&value)
}

/// `kuberc set`
pub fn run_set(session: &Session) -> CommandResult {
    let flags = &session.flags;
    let (file, _) = preference_file(session)?;
    let section = flags.string("section");
    check_flags(flags, &section)?;
    let mut preference = match std::fs::read(&file) {
        Ok(bytes) if !bytes.is_empty() => parse(&bytes)?,
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            crate::bail!("error reading kuberc file: open {file}: {}", os_error(&error))
        }
        _ => empty_preference(),
    };
    let options = parse_options(&flags.strings("option"))?;
    match section.as_str() {
        "defaults" => set_defaults(&mut preference, flags, options)?,
        "aliases" => set_alias(&mut preference, flags, options)?,
        _ => set_plugin_policy(&mut preference, flags)?,
    }
    save(&preference, &file)
}

fn preference_file(session: &Session) -> CommandResult<(String, bool)> {
    let found = select_file(&session.flags.string("kuberc"))?;
    found.ok_or_else(|| CommandError::new("KUBERC is disabled via KUBERC=off environment variable"))
}

fn parse(bytes: &[u8]) -> CommandResult<Preference> {
    parse_preference(bytes).map_err(|error| error.with_prefix("error parsing kuberc file: "))
}

fn to_value(preference: &Preference) -> CommandResult<api::Value> {
    serde_json::to_value(preference)
        .map_err(|error| CommandError::new(format!("failed to marshal preferences: {error}")))
}

fn empty_preference() -> Preference {
    Preference {
        kind: "Preference".into(),
        api_version: "kubectl.config.k8s.io/v1beta1".into(),
        ..Preference::default()
    }
}

/// The preferences that `view` offers to write.
fn recommended() -> Preference {
    let entry = |command: &str, name: &str| CommandDefault {
        command: command.into(),
        options: vec![OptionDefault { name: name.into(), default: "true".into() }],
    };
    Preference { defaults: vec![entry("apply", "server-side"), entry("delete", "interactive")], ..empty_preference() }
}

fn save(preference: &Preference, file: &str) -> CommandResult {
    let directory = match Path::new(file).parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(directory).map_err(|error| {
        let (shown, cause) = (directory.display(), os_error(&error));
        CommandError::new(format!("failed to create directory {shown}: mkdir {shown}: {cause}"))
    })?;
    let mut value = to_value(preference)?;
    for list in ["aliases", "defaults"] {
        if value[list].as_array().is_some_and(Vec::is_empty) {
            value[list] = api::Value::Null;
        }
    }
    std::fs::write(file, api::yaml::write_document(&value)).map_err(|error| {
        CommandError::new(format!("failed to write kuberc file: open {file}: {}", os_error(&error)))
    })?;
    outln!("Updated {file}");
    Ok(())
}

fn check_flags(flags: &FlagSet, section: &str) -> CommandResult {
    let given = |name: &str| !flags.strings(name).is_empty();
    let text = |name: &str| flags.string(name);
    match section {
        "aliases" if text("name").is_empty() => crate::bail!("--name is required when --section=aliases"),
        "defaults" if !text("name").is_empty() => {
            crate::bail!("--name should not be specified when --section=defaults")
        }
        "defaults" if given("prependarg") || given("appendarg") => {
            crate::bail!("--prependarg and --appendarg are only valid for --section=aliases")
        }
        "defaults" | "aliases" if text("command").is_empty() => {
            crate::bail!("--command is required when --section=aliases or --section=defaults")
        }
        "defaults" | "aliases" => Ok(()),
        "credentialplugin" => match (text("policy").as_str(), given("allowlist-entry")) {
            ("", _) => crate::bail!("--policy is required when --section=credentialplugin"),
            ("AllowAll" | "DenyAll", true) => crate::bail!(
                "--allowlist-entry may only be used when --section=credentialplugin and --policy=Allowlist"
            ),
            ("Allowlist", false) => {
                crate::bail!("--allowlist-entry is required when --section=credentialplugin and --policy=Allowlist")
            }
            ("AllowAll" | "DenyAll" | "Allowlist", _) => Ok(()),
            (other, _) => {
                crate::bail!(" --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {other}")
            }
        },
        other => crate::bail!("--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {other}"),
    }
}

fn parse_options(options: &[String]) -> CommandResult<Vec<OptionDefault>> {
    let parse = |option: &String| match option.split_once('=') {
        Some((name, default)) => {
            Ok(OptionDefault { name: name.trim_start_matches('-').to_owned(), default: default.to_owned() })
        }
        None => crate::bail!("invalid option format {}, expected flag=value", go_quote(option)),
    };
    options.iter().map(parse).collect()
}

fn set_defaults(preference: &mut Preference, flags: &FlagSet, options: Vec<OptionDefault>) -> CommandResult {
    let command = flags.string("command");
    match preference.defaults.iter_mut().find(|entry| entry.command == command) {
        Some(_) if !flags.bool("overwrite") => {
            crate::bail!("defaults for command {} already exist, use --overwrite to replace", go_quote(&command))
        }
        Some(entry) if !options.is_empty() => entry.options = options,
        Some(_) => {}
        None => preference.defaults.push(CommandDefault { command, options }),
    }
    Ok(())
}

fn set_alias(preference: &mut Preference, flags: &FlagSet, options: Vec<OptionDefault>) -> CommandResult {
    let mut alias = AliasOverride {
        name: flags.string("name"),
        command: flags.string("command"),
        prepend_args: flags.strings("prependarg"),
        append_args: flags.strings("appendarg"),
        options,
    };
    let Some(known) = preference.aliases.iter_mut().find(|known| known.name == alias.name) else {
        preference.aliases.push(alias);
        return Ok(());
    };
    if !flags.bool("overwrite") {
        crate::bail!("alias {} already exists, use --overwrite to replace", go_quote(&alias.name));
    }
    // What is not named stays.
    if alias.options.is_empty() {
        alias.options = std::mem::take(&mut known.options);
    }
    if alias.prepend_args.is_empty() {
        alias.prepend_args = std::mem::take(&mut known.prepend_args);
    }
    if alias.append_args.is_empty() {
        alias.append_args = std::mem::take(&mut known.append_args);
    }
    *known = alias;
    Ok(())
}

fn set_plugin_policy(preference: &mut Preference, flags: &FlagSet) -> CommandResult {
    let policy = flags.string("policy");
    if policy == "Allowlist" {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        for pair in flags.strings("allowlist-entry").iter().flat_map(|entry| entry.split(',')) {
            match parse_allowlist_entry(pair) {
                Ok(entry) => entries.push(entry),
                Err(error) => errors.push(error),
            }
        }
        CommandError::join(errors)?;
        preference.credential_plugin_allowlist = Some(entries);
    }
    preference.credential_plugin_policy = policy;
    Ok(())
}

fn parse_allowlist_entry(pair: &str) -> CommandResult<AllowlistEntry> {
    match pair.split_once('=') {
        None => crate::bail!("improperly formatted allowlist entry: {}", go_quote(pair)),
        Some(("name", _)) => crate::bail!("allowlist entry field \"name\" is deprecated, use \"command\" instead"),
        Some(("command", value)) if value.trim().is_empty() => {
            crate::bail!("empty value in allowlist entry for field \"command\"")
        }
        Some(("command", value)) => Ok(AllowlistEntry { command: value.to_owned(), ..Default::default() }),
        Some((field, _)) => crate::bail!("unrecognized allowlist entry field: {}", go_quote(field)),
    }
}
