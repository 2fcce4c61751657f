//! kubeconfig files, as kubectl reads them: which cluster, and as whom.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::access::{Credential, Found};
use super::exec::{Exec, ExecConfig};
use super::pem::Pem;
use crate::store::Secret;

// None of these has `Debug`: a user's has secrets in it.

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    clusters: Option<Vec<NamedCluster>>,
    contexts: Option<Vec<NamedContext>>,
    users: Option<Vec<NamedUser>>,
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    proxy_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<ExecConfig>,
    // Known so that they are refused, and not left out in silence.
    username: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
    #[serde(rename = "as")]
    impersonated: Option<serde::de::IgnoredAny>,
}

/// Reads the files of a list, of which the first that names something has its say.
pub(super) fn read(files: &[PathBuf]) -> Result<Found, String> {
    let mut read = Vec::new();
    for file in files {
        match std::fs::read_to_string(file) {
            Ok(text) => read.push((file.as_path(), parse(file, &text)?)),
            // In a list, kubectl skips what is not there.
            Err(error) if files.len() > 1 && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
        }
    }
    let names = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    let missing = |what: &str| format!("the kubeconfig {names} {what}");
    let current = read.iter().find_map(|(_, file)| file.current_context.as_deref().filter(|name| !name.is_empty()));
    let current = current.ok_or_else(|| missing("has no current-context: set it with kubectl config use-context NAME"))?;
    let context = read.iter().find_map(|(_, file)| file.contexts.iter().flatten().find(|one| one.name == current));
    let context = &context.ok_or_else(|| missing(&format!("has no context `{current}`")))?.context;
    let cluster =
        read.iter().find_map(|(path, file)| Some((path, file.clusters.iter().flatten().find(|one| one.name == context.cluster)?)));
    let (cluster_path, cluster) = cluster.ok_or_else(|| missing(&format!("has no cluster `{}`", context.cluster)))?;
    let none = User::default();
    let (user_path, user) = match &context.user {
        None => (cluster_path, &none),
        Some(name) => {
            let user = read.iter().find_map(|(path, file)| Some((path, file.users.iter().flatten().find(|one| one.name == *name)?)));
            let (path, user) = user.ok_or_else(|| missing(&format!("has no user `{name}`")))?;
            (path, user.user.as_ref().unwrap_or(&none))
        }
    };
    found(&cluster.cluster, cluster_path, user, user_path)
}

/// A parser's own words could repeat what it found, such as a token; the place is enough.
fn parse(file: &Path, text: &str) -> Result<File, String> {
    serde_norway::from_str::<Option<File>>(text).map(Option::unwrap_or_default).map_err(|error| match error.location() {
        Some(place) => format!("{} is no kubeconfig: see line {}, column {}", file.display(), place.line(), place.column()),
        None => format!("{} is no kubeconfig", file.display()),
    })
}

fn found(cluster: &Cluster, cluster_path: &Path, user: &User, user_path: &Path) -> Result<Found, String> {
    let refuse = |path: &Path, what: &str| Err(format!("the kubeconfig {} {what}", path.display()));
    if cluster.insecure_skip_tls_verify == Some(true) {
        return refuse(
            cluster_path,
            "has insecure-skip-tls-verify, which lets anybody pose as the cluster: name its certificate-authority",
        );
    }
    if cluster.proxy_url.is_some() {
        return refuse(cluster_path, "has a proxy-url, which is not spoken here: name an API server that can be reached");
    }
    if user.username.is_some() || user.auth_provider.is_some() {
        return refuse(
            user_path,
            "logs in with a password or an auth-provider, which Kubernetes no longer has: use a token, a certificate or exec",
        );
    }
    if user.impersonated.is_some() {
        return refuse(user_path, "impersonates somebody, which is not done here: use a user of its own");
    }
    let cacert =
        pem(cluster_path, "certificate-authority", cluster.certificate_authority.as_ref(), cluster.certificate_authority_data.as_ref())?;
    let certificate = pem(user_path, "client-certificate", user.client_certificate.as_ref(), user.client_certificate_data.as_ref())?;
    let key = pem(user_path, "client-key", user.client_key.as_ref(), user.client_key_data.as_ref())?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return refuse(user_path, "has one of client-certificate and client-key without the other"),
    };
    let credential = match (&user.exec, &user.token_file, &user.token) {
        (Some(exec), _, _) => {
            let described = json!({
                "server": cluster.server,
                "tls-server-name": cluster.tls_server_name,
                "certificate-authority-data": cluster.certificate_authority_data,
            });
            Credential::Exec(Exec::new(exec.clone(), folder(user_path), &described)?, Mutex::new(None))
        }
        (None, Some(file), _) => Credential::TokenFile(folder(user_path).join(file)),
        (None, None, Some(token)) if !token.is_empty() => Credential::Token(Secret::from(token.clone())),
        (None, None, Some(_) | None) => Credential::Nothing,
    };
    Ok(Found { server: cluster.server.clone(), cacert, server_name: cluster.tls_server_name.clone(), identity, credential })
}

/// Relative paths are relative to the file that they stand in; of a text and a file, the text counts.
fn pem(path: &Path, what: &str, file: Option<&PathBuf>, data: Option<&String>) -> Result<Option<Pem>, String> {
    let place = || format!("{what}-data of {}", path.display());
    match (data.filter(|data| !data.is_empty()), file) {
        (Some(data), _) => {
            let text = STANDARD.decode(data.trim()).map_err(|_| format!("cannot use {}: it is not base64", place()))?;
            Ok(Some(Pem::Text(text, place())))
        }
        (None, Some(file)) => Ok(Some(Pem::File(folder(path).join(file)))),
        (None, None) => Ok(None),
    }
}

fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "
apiVersion: v1
kind: Config
current-context: shop
preferences: {}
contexts:
- name: shop
  context: {cluster: prod, user: web, namespace: elsewhere}
clusters:
- name: prod
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority: ca/ca.pem
    tls-server-name: kubernetes
users:
- name: web
  user:
    token: hunter2
";

    /// What is found in these files, or what is said of them.
    fn found_in(texts: &[&str]) -> Result<Found, String> {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..texts.len()).map(|number| folder.path().join(format!("config-{number}"))).collect();
        for (file, text) in files.iter().zip(texts) {
            std::fs::write(file, text).unwrap();
        }
        read(&files)
    }

    #[test]
    fn the_current_context_leads_to_a_cluster_and_a_user() {
        let found = found_in(&[USUAL]).map_err(|error| panic!("{error}")).unwrap();
        assert_eq!((found.server.as_str(), found.server_name.as_deref()), ("https://10.0.0.1:6443", Some("kubernetes")));
        assert!(matches!(&found.cacert, Some(Pem::File(file)) if file.is_absolute() && file.ends_with("ca/ca.pem")));
        assert!(matches!(&found.credential, Credential::Token(token) if token.expose() == "hunter2"));
    }

    #[test]
    fn json_is_a_kubeconfig_too_and_texts_stand_in_for_files() {
        let text = r#"{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
            "clusters":[{"name":"k","cluster":{"server":"https://h","certificate-authority-data":"QUJD","certificate-authority":"x"}}],
            "users":[{"name":"u","user":{"tokenFile":"t","client-certificate-data":"QUJD","client-key-data":"QUJD"}}]}"#;
        let found = found_in(&[text]).map_err(|error| panic!("{error}")).unwrap();
        assert!(matches!(&found.cacert, Some(Pem::Text(text, _)) if text == b"ABC"));
        assert!(found.identity.is_some());
        assert!(matches!(&found.credential, Credential::TokenFile(file) if file.is_absolute()));
    }

    #[test]
    fn of_several_files_the_first_has_its_say() {
        let context = "current-context: shop\ncontexts: null\n";
        assert!(found_in(&[context, USUAL]).is_ok_and(|found| found.server == "https://10.0.0.1:6443"));
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("there");
        std::fs::write(&there, USUAL).unwrap();
        assert!(read(&[folder.path().join("none"), there]).is_ok());
    }

    #[test]
    fn each_unusable_file_says_what_to_change_and_no_secret() {
        for (from, to, words) in [
            ("current-context: shop", "", "use-context"),
            ("current-context: shop", "current-context: other", "no context `other`"),
            ("cluster: prod", "cluster: gone", "no cluster `gone`"),
            ("user: web,", "user: gone,", "no user `gone`"),
            ("tls-server-name: kubernetes", "insecure-skip-tls-verify: true", "insecure-skip-tls-verify"),
            ("tls-server-name: kubernetes", "proxy-url: http://p", "proxy-url"),
            ("token: hunter2", "username: hunter2", "use a token"),
            ("token: hunter2", "auth-provider: {name: gcp, config: hunter2}", "use a token"),
            ("token: hunter2", "as: hunter2", "impersonates"),
            ("token: hunter2", "client-key-data: aHVudGVyMg==", "without the other"),
            ("token: hunter2", "client-key-data: '!hunter2'", "not base64"),
            ("token: hunter2", "token: [hunter2]", "see line"),
            ("token: hunter2", "exec: hunter2", "see line"),
        ] {
            let text = USUAL.replace(from, to);
            assert_ne!(text, USUAL, "{from}");
            let error = found_in(&[&text]).map(drop).unwrap_err();
            assert!(error.contains(words), "{to}: {error}");
            assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
        }
    }
}
