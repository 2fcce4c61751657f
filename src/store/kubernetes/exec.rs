//! Credentials that a command hands out, as cloud providers' kubeconfigs ask for: `client.authentication.k8s.io`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::pem::{self, Pem};
use crate::store::Secret;
use crate::store::tls::Identity;

/// How long the command may take; it usually asks a cloud provider.
const LIMIT: Duration = Duration::from_secs(30);

/// The command, and what it is told.
pub(super) struct Exec {
    command: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    info: Value,
}

/// The `exec` part of a kubeconfig's user.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecConfig {
    api_version: String,
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    #[serde(default)]
    provide_cluster_info: bool,
    interactive_mode: Option<String>,
}

#[derive(Clone, Deserialize)]
struct Variable {
    name: String,
    value: String,
}

/// What the command prints.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    kind: String,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Exec {
    /// The command of a kubeconfig in `folder`, for the cluster that `cluster` describes.
    pub(super) fn new(config: ExecConfig, folder: &Path, cluster: &Value) -> Result<Self, String> {
        if config.interactive_mode.as_deref() == Some("Always") {
            return Err(format!("`{}` of the kubeconfig needs a person at a terminal: use another user", config.command));
        }
        let mut spec = json!({ "interactive": false });
        if config.provide_cluster_info {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({ "apiVersion": config.api_version, "kind": "ExecCredential", "spec": spec });
        // As a shell does: a name is looked up, a path is one from the kubeconfig's folder.
        let command = if config.command.contains('/') { folder.join(&config.command) } else { PathBuf::from(&config.command) };
        let variables = config.env.unwrap_or_default().into_iter().map(|variable| (variable.name, variable.value)).collect();
        Ok(Self { command, arguments: config.args.unwrap_or_default(), variables, info })
    }

    pub(super) fn command(&self) -> std::path::Display<'_> {
        self.command.display()
    }

    /// Runs the command. What it prints is in no message; its complaints go where ours go.
    pub(super) async fn run(&self) -> Result<(Option<Secret>, Option<Identity>), String> {
        let name = self.command();
        let mut command = Command::new(&self.command);
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", self.info.to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("cannot run `{name}` of the kubeconfig: {error}"))?;
        let output = timeout(LIMIT, child.wait_with_output()).await.map_err(|_| format!("`{name}` took longer than {LIMIT:?}"))?;
        let output = output.map_err(|error| format!("cannot read what `{name}` prints: {error}"))?;
        if !output.status.success() {
            return Err(format!("`{name}` ended with {}", output.status));
        }
        let nothing = || format!("`{name}` printed no ExecCredential with a token or a certificate");
        let printed = serde_json::from_slice::<Printed>(&output.stdout).ok().filter(|printed| printed.kind == "ExecCredential");
        let status = printed.ok_or_else(nothing)?.status;
        let pem = |text: String, what: &str| Pem::Text(text.into_bytes(), format!("the {what} that `{name}` printed"));
        let identity = status.client_certificate_data.zip(status.client_key_data);
        let identity = identity.map(|(cert, key)| pem::identity(&pem(cert, "certificate"), &pem(key, "key"))).transpose()?;
        let token = status.token.filter(|token| !token.is_empty()).map(Secret::from);
        if token.is_none() && identity.is_none() {
            return Err(nothing());
        }
        Ok((token, identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(script: &str, more: &Value) -> Result<Exec, String> {
        let mut config = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Exec::new(serde_json::from_value(config).unwrap(), Path::new("/"), &json!({"server": "https://h"}))
    }

    #[tokio::test]
    async fn a_command_is_told_what_it_needs_and_gives_a_token() {
        let script = r#"case "$KUBERNETES_EXEC_INFO" in *'"server":"https://h"'*) ;; *) exit 3;; esac
            echo "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"$WHO-1\"}}""#;
        let more = json!({"env": [{"name": "WHO", "value": "alice"}], "provideClusterInfo": true});
        let (token, identity) = exec(script, &more).unwrap().run().await.map_err(|why| panic!("{why}")).unwrap();
        assert_eq!(token.unwrap().expose(), "alice-1");
        assert!(identity.is_none());
    }

    #[tokio::test]
    async fn a_command_that_gives_nothing_says_so_without_its_output() {
        for (script, words) in [("echo hunter2", "no ExecCredential"), ("echo hunter2; exit 4", "exit status: 4")] {
            let error = exec(script, &json!({})).unwrap().run().await.map(drop).unwrap_err();
            assert!(error.contains(words) && !error.contains("hunter2"), "{error}");
        }
        let error = exec("true", &json!({"interactiveMode": "Always"})).map(drop).unwrap_err();
        assert!(error.contains("terminal"), "{error}");
    }
}
