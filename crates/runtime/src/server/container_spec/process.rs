//! The first process: command, variables, user.

use tonic::Status;

use super::{
    super::records::Sandbox,
    security::{apparmor_profile, capabilities, check_selinux},
};
use crate::{
    container::spec::{ProcessSpec, UserSpec},
    cri::types::*,
    image::ImageProcessConfig,
};

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Makes the specification of the first process, but for its system call filter.
pub fn process_spec(
    config: &ContainerConfig,
    context: &LinuxContainerSecurityContext,
    sandbox: &Sandbox,
    image: &ImageProcessConfig,
) -> Result<ProcessSpec, Status> {
    check_selinux(context)?;
    let directory = [&config.working_dir, &image.working_dir].into_iter().find(|path| !path.is_empty());
    let resources = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    Ok(ProcessSpec {
        arguments: arguments(config, image)?,
        environment: environment(config, sandbox, image)?,
        directory: directory.map_or("/", |path| path).into(),
        user: user(context, image)?,
        terminal: config.tty,
        no_new_privileges: context.no_new_privs,
        capabilities: capabilities(context)?,
        oom_score_adj: resources.and_then(|resources| i32::try_from(resources.oom_score_adj).ok()),
        apparmor: apparmor_profile(context)?,
        ..Default::default()
    })
}

/// A command replaces the image's entry point and its command.
fn arguments(config: &ContainerConfig, image: &ImageProcessConfig) -> Result<Vec<String>, Status> {
    let (mut words, mut args) = (config.command.clone(), config.args.clone());
    if words.is_empty() {
        words = image.entrypoint.clone().unwrap_or_default();
        if args.is_empty() {
            args = image.cmd.clone().unwrap_or_default();
        }
    }
    words.extend(args);
    if words.is_empty() {
        return Err(Status::invalid_argument("no command specified"));
    }
    Ok(words)
}

/// Later variables replace earlier ones of the same name.
fn environment(config: &ContainerConfig, sandbox: &Sandbox, image: &ImageProcessConfig) -> Result<Vec<String>, Status> {
    let mut variables: Vec<String> = Vec::new();
    let mut set = |variable: String| {
        let name = variable.split('=').next().unwrap_or_default().to_owned();
        let same = |known: &String| known.split('=').next() == Some(name.as_str());
        match variables.iter().position(same) {
            Some(index) => variables[index] = variable,
            None => variables.push(variable),
        }
    };
    set(DEFAULT_PATH.to_owned());
    set(format!("HOSTNAME={}", sandbox.hostname()));
    if config.tty {
        set("TERM=xterm".to_owned());
    }
    image.env.iter().flatten().cloned().for_each(&mut set);
    for variable in &config.envs {
        let value = std::str::from_utf8(&variable.value)
            .map_err(|_| Status::invalid_argument(format!("variable {:?} is not UTF-8", variable.key)))?;
        set(format!("{}={value}", variable.key));
    }
    Ok(variables)
}

fn user(context: &LinuxContainerSecurityContext, image: &ImageProcessConfig) -> Result<UserSpec, Status> {
    let number = |value: &Option<Int64Value>| value.as_ref().map(|value| value.value.to_string());
    let chosen = number(&context.run_as_user).or_else(|| Some(context.run_as_username.clone()));
    let chosen = chosen.filter(|user| !user.is_empty());
    let group = number(&context.run_as_group);
    let (user, group) = match chosen {
        Some(user) => (user, group),
        None if group.is_some() => {
            return Err(Status::invalid_argument("user group is specified without user"));
        }
        None => {
            let (user, group) = image.user.split_once(':').unwrap_or((&image.user, ""));
            (user.to_owned(), Some(group.to_owned()).filter(|group| !group.is_empty()))
        }
    };
    let groups = context.supplemental_groups.iter().map(|group| u32::try_from(*group)).collect::<Result<_, _>>();
    Ok(UserSpec {
        user,
        group,
        groups: groups.map_err(|_| Status::invalid_argument("a supplemental group is not a group ID"))?,
        adds_image_groups: context.supplemental_groups_policy == SupplementalGroupsPolicy::Merge as i32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_replaces_the_images_arguments() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let image =
            ImageProcessConfig { entrypoint: Some(words("entry")), cmd: Some(words("cmd")), ..Default::default() };
        let check = |command: &str, args: &str| {
            let config = ContainerConfig { command: words(command), args: words(args), ..Default::default() };
            arguments(&config, &image).map(|words| words.join(" ")).unwrap_or_default()
        };
        assert_eq!(check("", ""), "entry cmd");
        assert_eq!(check("", "a"), "entry a");
        assert_eq!(check("c", ""), "c");
        assert_eq!(check("c", "a b"), "c a b");
    }

    #[test]
    fn users_of_the_image_are_the_default() {
        let image = ImageProcessConfig { user: "web:log".into(), ..Default::default() };
        let found = user(&LinuxContainerSecurityContext::default(), &image).unwrap();
        assert_eq!((found.user.as_str(), found.group.as_deref()), ("web", Some("log")));
        let group = LinuxContainerSecurityContext { run_as_group: Some(Int64Value { value: 5 }), ..Default::default() };
        assert!(user(&group, &image).is_err());
    }
}
